"""Instances of the hypervisor chroot, on real mounts; needs root."""

import os
import shutil
import subprocess

import pytest

from fakes import nodes
from ganeti.base import errors

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.path.exists("/dev/loop-control"),
        reason="needs root and loop devices",
    ),
]
#: Starts a program that ends when it is asked to, and one that only a kill ends.
SCRIPT = """#!/bin/sh
case $1 in
start)
  mount -t proc proc /proc; mount -t devtmpfs dev /dev
  sleep 1000 &
  sh -c 'trap "" TERM; echo deaf > /deaf; sleep 1001' &
  while [ ! -s /deaf ]; do :; done ;;
stop) echo asked > /asked; [ ! -e /dev/null ] || exit 3 ;;
esac
"""
PROGRAMS = ("sh", "mount", "sleep")


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    # The directory of run-time files is a link on most systems.
    run = os.path.dirname(made.paths.run_dir)
    os.rename(run, f"{made.paths.root}/run")
    os.symlink("../run", run)
    yield made
    root = f"{made.paths.run_dir}/chroot-hypervisor/web1"
    if os.path.ismount(root):
        subprocess.run(["fuser", "-k", "-KILL", "-M", "-m", root], check=False)
        subprocess.run(["umount", "--recursive", "--lazy", root], check=True)


@pytest.fixture
def record(node, tmp_path):
    """An instance whose disk has busybox and a script."""
    root = tmp_path / "root"
    for name in ("bin", "proc", "dev"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for name in PROGRAMS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "script").write_text(SCRIPT)
    (root / "script").chmod(0o755)
    params = {"init_script": "/script"}
    made = nodes.instance(hypervisor="chroot", disks=1, hvparams=params)
    made["disks_info"][0]["size"] = 8
    nodes.make_disks(node, made)
    image = node.paths.at(made["disks_info"][0]["logical_id"][1])
    mke2fs = ("mke2fs", "-q", "-F", "-t", "ext4", "-d", root, image)
    subprocess.run(mke2fs, check=True)
    return made


def mounts(node):
    with open("/proc/self/mountinfo", encoding="utf-8") as src:
        points = [line.split()[4] for line in src]
    base = os.path.realpath(f"{node.paths.run_dir}/chroot-hypervisor") + "/"
    return [path.removeprefix(base) for path in points if path.startswith(base)]


def test_programs_run_in_their_directory_until_they_are_killed(node, record):
    nodes.call(node, "instance_start", record, False, [])
    assert mounts(node) == ["web1", "web1/proc", "web1/dev"]
    driver = node.hypervisor("chroot")
    assert [info.name for info in driver.all_infos()] == ["web1"]
    info = nodes.call(node, "instance_info", "web1", "chroot", {})
    assert (info["memory"], info["state"]) == (0, 0)
    with pytest.raises(errors.HypervisorError, match="cannot clean up"):
        driver.cleanup("web1")
    with pytest.raises(errors.HypervisorError, match="reboot it with type hard"):
        nodes.call(node, "instance_reboot", record, "soft", 1, [])
    assert mounts(node) == ["web1", "web1/proc", "web1/dev"]
    # The script fails; the first program ends when asked to, the second one is killed.
    with pytest.raises(errors.HypervisorError, match=r"/script stop in .* with code 3"):
        driver.stop("web1", hvparams=record["hvparams"], force=False)
    root = f"{node.paths.run_dir}/chroot-hypervisor/web1"
    assert os.path.exists(f"{root}/asked")
    driver.stop("web1", hvparams=record["hvparams"], force=False, retry=True)
    assert driver.list_names() == ["web1"]
    nodes.call(node, "instance_shutdown", record, 0, [])
    assert (driver.list_names(), mounts(node)) == ([], [])
    assert not os.path.exists(root)


def test_a_script_that_fails_leaves_nothing_mounted(node, record):
    record["hvparams"] = {"init_script": "/bin/absent"}
    with pytest.raises(errors.HypervisorError, match="its first disk has no /bin/abs"):
        nodes.call(node, "instance_start", record, False, [])
    assert mounts(node) == []
    record["hvparams"] = {"init_script": "/proc"}
    with pytest.raises(
        errors.HypervisorError, match=r"/proc start in .*see .*web1.log"
    ):
        nodes.call(node, "instance_start", record, False, [])
    assert mounts(node) == []
