"""A node daemon whose log's disk is taken away still answers and power-cycles.

The disk is a file system of its own: it is filled, shut down, so that every access is an
input/output error, or frozen, so that every write waits without limit.
"""

import contextlib
import fcntl
import os
import pathlib
import struct
import subprocess

import pytest

from fakes.patience import until
from fakes.vnode import VirtualNode, own_address
from ganeti.base.constants import versions

pytestmark = [pytest.mark.daemon, pytest.mark.root]

SIZE_MIB = 16
#: EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH, see linux/ext4.h.
SHUT_DOWN, AT_ONCE = 0x8004587D, 2


@pytest.fixture
def disk(tmp_path):
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    image, place = tmp_path / "disk", tmp_path / "place"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE_MIB << 20)
    run("mkfs.ext4", "-q", "-F", image)
    run("mount", "-o", "loop", image, place)
    yield place
    run("umount", "-l", place)


@pytest.fixture
def node(tmp_path, disk):
    made = VirtualNode(tmp_path, "n1.tst", own_address("127.2"))
    pathlib.Path(made.paths.log_dir).rmdir()
    os.symlink(disk, made.paths.log_dir)
    made.make_cluster()
    yield made
    made.stop(9)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def full(disk):
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


@contextlib.contextmanager
def failed(disk):
    place = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(place, SHUT_DOWN, struct.pack("I", AT_ONCE))
    os.close(place)
    yield


@contextlib.contextmanager
def hung(disk):
    run("fsfreeze", "--freeze", disk)
    try:
        yield
    finally:
        run("fsfreeze", "--unfreeze", disk)


def locked_kib(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmLck")).split()[1])


@pytest.mark.parametrize("trouble", [full, failed, hung])
def test_a_node_without_its_log_answers_and_power_cycles(node, disk, trouble):
    node.start_noded("--debug", lock_memory=True)
    assert locked_kib(node.process.pid) > 0
    with trouble(disk), contextlib.closing(node.runner()) as caller:
        for _ in range(20):
            answer = caller.call_one("version", "u1", timeout_s=60)
            assert answer.payload == versions.PROTOCOL_VERSION
        reset = caller.call_one("node_powercycle", "u1", "fake", {}, timeout_s=60)
        assert "Reboot scheduled" in reset.payload
        request = pathlib.Path(node.paths.at("/power-cycle"))
        until("the power cycle", request.exists)


def test_lines_of_a_hung_disk_are_written_when_it_answers_again(node, disk):
    node.start_noded("--debug")
    with contextlib.closing(node.runner()) as caller:
        with hung(disk):
            assert not caller.call_one("version", "u1", timeout_s=60).failed
        log = disk / "node-daemon.log"
        until("the line", lambda: "call version" in log.read_text())
