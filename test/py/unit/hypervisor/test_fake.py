"""The hypervisor of files, where its files are not as it left them."""

import pathlib

import pytest

from fakes import nodes
from ganeti import errors


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
