"""The store on disks that are full or damaged, with real daemons and file systems."""

import contextlib
import os
import shutil
import subprocess

import pytest

from fakes.patience import until

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
        until("refusal", lambda: refused(cluster, *tag, "full"))
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
        cluster.check(*tag, "room")
        tags = cluster.check("gnt-cluster", "list-tags").split()
        assert "room" in tags
        assert not {f"full{number}" for number in range(5)} & set(tags)
        wait_for_copy(cluster)


def refused(cluster, *argv):
    """Return whether a command ends at once because changes are refused."""
    actual = cluster.run("timeout", "3", *argv)
    return "refused until" in actual.stderr


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
