"""The hypervisor of files, where its files are not as it left them."""

import pathlib
import types

import pytest

from fakes import nodes
from ganeti.base import errors


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path)


@pytest.fixture
def driver(node):
    return node.hypervisor("fake")


def place(node, name="web1"):
    """Return the file of a guest, whose directory exists."""
    path = pathlib.Path(node.paths.run_dir, "fake-hypervisor", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.parametrize(
    "act",
    [
        lambda driver, name: driver.info(name),
        lambda driver, name: driver.stop(name, hvparams={}, force=True),
        lambda driver, name: driver.cleanup(name),
    ],
)
def test_a_name_that_no_host_can_have_is_refused(driver, act):
    for name, text in (("a" * 256, "at most 255"), ("../web1", "not a host name")):
        with pytest.raises(errors.HypervisorError, match=text):
            act(driver, name)


def test_the_longest_name_that_a_host_can_have_is_one_of_a_guest(node, driver):
    name = "a" * 255
    record = nodes.instance(name)
    nodes.call(node, "instance_start", record, False, [])
    assert driver.list_names() == [name]
    assert driver.info(name).memory_mib == 128


def test_a_guest_that_cannot_be_read_is_named_with_the_reason(node, driver):
    place(node).mkdir()
    with pytest.raises(errors.HypervisorError, match=r"web1: .*: Is a directory"):
        driver.info("web1")


def test_a_guest_whose_file_was_damaged_is_named(node, driver):
    place(node).write_text("0\n128\n")
    with pytest.raises(errors.HypervisorError, match=r"web1: .*: wanted three"):
        driver.info("web1")


def test_a_node_without_guests_has_none(driver):
    assert driver.list_names() == []
    assert driver.info("web1") is None


def test_a_directory_that_cannot_be_made_is_reported(node, driver):
    place(node).parent.rmdir()
    pathlib.Path(node.paths.run_dir, "fake-hypervisor").write_text("in the way")
    assert "File exists" in driver.verify()


WEB1 = types.SimpleNamespace(
    name="web1", hvparams={}, beparams={"maxmem": 256, "minmem": 128, "vcpus": 2}
)


@pytest.mark.parametrize(
    "act",
    [
        lambda driver: driver.stop("web1", hvparams={}, force=False),
        lambda driver: driver.balloon(WEB1, 128),
        lambda driver: driver.resize_disk(WEB1, None, 1),
        lambda driver: driver.migration_info(WEB1),
        lambda driver: driver.migratable(WEB1),
    ],
)
def test_a_guest_that_does_not_run_is_named(driver, act):
    assert driver.verify() is None
    with pytest.raises(errors.HypervisorError, match=r"^instance web1: not running$"):
        act(driver)
    driver.start(WEB1, [], paused=False)
    act(driver)


def test_a_guest_runs_once(driver):
    driver.verify()
    driver.accept(WEB1, "", "192.0.2.2", [])
    driver.start(WEB1, [], paused=True)
    expected = "^instance web1: already running$"
    for act in (
        lambda: driver.start(WEB1, [], paused=False),
        lambda: driver.accept(WEB1, "", "192.0.2.2", []),
    ):
        with pytest.raises(errors.HypervisorError, match=expected):
            act()


def test_a_balloon_changes_the_memory_and_nothing_else(driver):
    driver.verify()
    driver.start(WEB1, [], paused=False)
    before = driver.info("web1")
    assert (before.memory_mib, before.vcpus) == (256, 2)
    driver.balloon(WEB1, 200)
    assert driver.info("web1") == before._replace(memory_mib=200)
    assert driver.migration_info(WEB1) == "200"
