"""The store, and the log of a node daemon, on disks that are full, damaged or silent."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

from fakes.patience import PATIENCE_S, start, until
from fakes.vnode import VirtualNode, own_address
from ganeti.base.constants import versions
from ganeti.protocols.rpc import calls

pytestmark = pytest.mark.daemon

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}
DATA = "/var/lib/ganeti"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    actual = cluster_of(2)
    actual.wait_until_clean()
    return actual


def copies(cluster):
    with cluster.luxi() as client:
        return client.call("QueryCopies")


def wait_for_copy(cluster):
    def is_current():
        answer = copies(cluster)
        (row,) = answer["copies"]
        return row["is_current"] and not row["lag"] and not answer["warning"]

    until("the copy", is_current)


def submit(cluster, count):
    with cluster.luxi() as client:
        jobs = client.call("SubmitManyJobs", [[[DELAY]] * count])
        assert all(is_good for is_good, _job in jobs)

        def are_done():
            rows = client.call("QueryJobs", [[job for _, job in jobs], ["status"]])
            return all(row == ["success"] for row in rows)

        until("the jobs", are_done)
    return [job for _is_good, job in jobs]


@contextlib.contextmanager
def small_disk(cluster, name, place):
    """Put a directory of a node onto a file system of its own; it can be filled."""
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    cluster.command("kill", name)
    shutil.copytree(place, f"{place}.saved", symlinks=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "none", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    try:
        assert done.returncode == 0, done.stderr
        shutil.copytree(f"{place}.saved", place, symlinks=True, dirs_exist_ok=True)
        cluster.command("start", name)
        yield
    finally:
        cluster.command("kill", name)
        (place / "filler").unlink(missing_ok=True)
        if os.path.ismount(place):
            shutil.copytree(place, f"{place}.saved", symlinks=True, dirs_exist_ok=True)
        subprocess.run(["umount", "-l", place], check=False)
        shutil.copytree(f"{place}.saved", place, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(f"{place}.saved")
        cluster.command("start", name)


def fill(path):
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.sampled
def test_a_master_with_a_full_disk_refuses_changes_until_there_is_room(cluster):
    place = cluster.file(DATA)
    with small_disk(cluster, "node1", place):
        wait_for_copy(cluster)
        fill(place / "filler")
        tag = ("gnt-cluster", "add-tags")
        # Its job may have begun, and waits for room then.
        first = start(lambda: cluster.run(*tag, "full"))
        until("refusal", lambda: "refused" in copies(cluster)["warning"])
        for number in range(5):
            actual = cluster.run(*tag, f"full{number}")
            assert actual.code == 1
            assert "Failure: storage error:" in actual.stderr
            assert (
                "refused until the disk of the master can be written" in actual.stderr
            )
            assert "Unhandled" not in actual.stderr
        assert "Traceback" not in actual.output
        assert "node2" in cluster.check("gnt-node", "list", "--no-headers")
        assert "refused" in copies(cluster)["warning"]
        (place / "filler").unlink()
        until("a probe", lambda: not copies(cluster)["warning"])
        first.result(PATIENCE_S)
        cluster.check(*tag, "room")
        tags = cluster.check("gnt-cluster", "list-tags").split()
        assert "room" in tags
        assert not {f"full{number}" for number in range(5)} & set(tags)
        wait_for_copy(cluster)


def test_a_damaged_copy_is_set_aside_and_replaced(cluster):
    submit(cluster, 60)
    wait_for_copy(cluster)
    cluster.command("kill", "node2", "ganeti-noded")
    path = cluster.file(f"{DATA}/store.db", "node2")
    damage(path)
    submit(cluster, 2)
    cluster.command("start", "node2", "ganeti-noded")
    wait_for_copy(cluster)
    assert path.with_name("store.db.damaged").exists()
    with contextlib.closing(Sqlite(path)) as db:
        assert db.check() == "ok"


def damage(path):
    """Overwrite the inner pages of a closed database."""
    with contextlib.closing(Sqlite(path)) as db:
        db.checkpoint()
    size = path.stat().st_size
    with path.open("r+b") as file:
        for start in range(size // 4 // 4096 * 4096, size, 4096):
            file.seek(start)
            file.write(b"\xff" * 4096)


class Sqlite:
    """A file as SQLite alone sees it."""

    def __init__(self, path):
        import sqlite3

        self._db = sqlite3.connect(path)
        self.close = self._db.close

    def checkpoint(self):
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def check(self):
        return self._db.execute("PRAGMA integrity_check").fetchone()[0]


# A node daemon whose log's disk is taken away still answers and power-cycles.
#
# The disk is a file system of its own: it is filled, shut down, so that every access is an
# input/output error, or frozen, so that every write waits without limit.

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


@pytest.mark.root
@pytest.mark.parametrize("trouble", [full, failed, hung])
def test_a_node_without_its_log_answers_and_power_cycles(node, disk, trouble):
    node.start_noded("--debug", lock_memory=True)
    assert locked_kib(node.process.pid) > 0
    with trouble(disk), contextlib.closing(node.runner()) as caller:
        for _ in range(20):
            answer = caller.call_node("u1", calls.version(), timeout_s=60)
            assert answer.payload == versions.PROTOCOL_VERSION
        reset = caller.call_node("u1", calls.node_powercycle("fake", {}), timeout_s=60)
        assert "Reboot scheduled" in reset.payload
        request = pathlib.Path(node.paths.at("/power-cycle"))
        until("the power cycle", request.exists)


@pytest.mark.root
def test_lines_of_a_hung_disk_are_written_when_it_answers_again(node, disk):
    node.start_noded("--debug")
    with contextlib.closing(node.runner()) as caller:
        with hung(disk):
            assert not caller.call_node("u1", calls.version(), timeout_s=60).failed
        log = disk / "node-daemon.log"
        until("the line", lambda: "call version" in log.read_text())
