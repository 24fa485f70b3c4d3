"""Errors of the hypervisor chroot; test/py/daemon/test_chroot.py has real mounts."""

import errno
import types

import msgspec
import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors, pathutils
from ganeti.model.objects.filled import InstanceX
from ganeti.node import hypervisor
from ganeti.node.hypervisor import chroot, registry

PARAMS = {"init_script": "/script"}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The driver with a runner, and a mounted directory of web1."""
    runner = FakeRunner(fuser=FakeRunner.DONE, chroot=FakeRunner.DONE)
    paths = pathutils.Paths(f"{tmp_path}/n1", "n1")
    root = tmp_path / "n1/var/run/ganeti/chroot-hypervisor/web1"
    root.mkdir(parents=True)
    (root / "script").touch()
    mounted = [str(root)]
    monkeypatch.setattr(
        chroot, "_mounts_below", lambda path: [p for p in mounted if p == path]
    )
    effects = hypervisor.NodeEffects(paths, runner, nodes.CountedClock())
    driver = registry.drivers(effects)["chroot"]
    return types.SimpleNamespace(driver=driver, runner=runner, root=root)


def stop(made, *, force, retry=False):
    made.driver.stop("web1", hvparams=PARAMS, force=force, retry=retry)
    return made.runner.lines


def test_only_the_first_request_runs_the_script(made):
    root = made.root
    assert stop(made, force=False) == [
        f"fuser -M -m {root}",
        f"chroot {root} /script stop",
        f"fuser -M -m {root}",
        f"fuser -k -TERM -M -m {root}",
    ]
    del made.runner.commands[:]
    assert stop(made, force=False, retry=True)[-1] == f"fuser -k -TERM -M -m {root}"
    assert not any(line.startswith("chroot") for line in made.runner.lines)


def test_programs_that_cannot_be_killed_are_reported(made):
    with pytest.raises(
        errors.HypervisorError, match=r"web1: .* do not end; see 'fuser"
    ):
        stop(made, force=True)
    assert f"fuser -k -KILL -M -m {made.root}" in made.runner.lines


def test_nothing_is_done_to_an_instance_without_programs(made):
    made.runner.answers["fuser"] = (1, "", "")
    assert stop(made, force=True) == [f"fuser -M -m {made.root}"]
    assert made.driver.info("web1") is None


def test_an_unclear_answer_does_not_mean_stopped(made):
    made.runner.answers["fuser"] = (None, "", "")
    with pytest.raises(errors.HypervisorError, match=r"fuser -m .*web1"):
        made.driver.list_names()


def test_programs_are_not_migratable_so_that_they_can_be_failed_over(made):
    with pytest.raises(errors.HypervisorError, match="does not support migration"):
        made.driver.migratable(msgspec.convert(nodes.instance("web1"), InstanceX))


def test_missing_programs_of_the_node_are_named(made, monkeypatch):
    monkeypatch.setattr(chroot.shutil, "which", lambda name, path: name != "fuser")
    assert made.driver.verify() == "programs fuser are not installed"
    monkeypatch.setattr(chroot.shutil, "which", lambda name, path: True)
    assert made.driver.verify() is None


def test_a_path_that_leaves_the_directory_is_no_script(made):
    with pytest.raises(errors.HypervisorError, match=r"found '/\.\./bin/sh'"):
        made.driver.validate({"init_script": "/../bin/sh"})
    made.driver.validate(PARAMS)


def test_programs_on_a_disk_that_fails_still_run(made, monkeypatch):
    def failed(_path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(chroot.os, "lstat", failed)
    assert made.driver.info("web1") is not None


def test_a_run_directory_behind_a_link_is_named_as_the_kernel_does(tmp_path):
    """As /var/run/ganeti is on most systems."""
    (tmp_path / "run/ganeti").mkdir(parents=True)
    (tmp_path / "n1/var").mkdir(parents=True)
    (tmp_path / "n1/var/run").symlink_to(tmp_path / "run")
    paths = pathutils.Paths(f"{tmp_path}/n1", "n1")
    effects = hypervisor.NodeEffects(paths, FakeRunner(), nodes.CountedClock())
    driver = registry.drivers(effects)["chroot"]
    assert driver._root("web1") == f"{tmp_path}/run/ganeti/chroot-hypervisor/web1"


def test_mounts_are_found_below_a_directory_alone(tmp_path):
    table = tmp_path / "mountinfo"
    row = "1 2 0:1 / {} rw - ext4 /dev/x rw\n"
    paths = ("/r/web1", "/r/web10", r"/r/web1/a\040b", "/r")
    table.write_text("".join(row.format(path) for path in paths))
    assert chroot._mounts_below("/r/web1", str(table)) == ["/r/web1", "/r/web1/a b"]
