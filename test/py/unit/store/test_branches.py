"""Kept files of lost histories: how many, and nothing beside them."""

import glob
import os

import pytest

from fakes import cluster
from ganeti import store
from ganeti.clock import SystemClock
from ganeti.store import Document, branches, wire
from ganeti.store.database import Database

#: A whole copy of a cluster that knows none of our history.
OTHER = wire.Copy(1, 9, b"other", [], 9, [])


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


def write(path, *changes):
    engine = store.open_master(path, replicate=None, clock=SystemClock())
    engine.commit(changes)
    engine.close()


def keep(path):
    db = Database(path, create=False)
    try:
        return branches.keep(db, OTHER)
    finally:
        db.close()


def beside(path):
    return sorted(set(glob.glob(f"{path}*")) - {path})


def touch(*paths):
    for each in paths:
        with open(each, "wb") as out:
            out.write(b"left by a crash")


def test_the_newest_files_are_kept_and_nothing_else(path):
    write(path, *cluster.big(3, 1))
    kept = []
    for number in range(branches.KEPT + 2):
        write(path, Document("jobs", str(number), b"{}"))
        kept.append(keep(path))
    assert beside(path) == sorted(kept[-branches.KEPT :])


def test_files_that_a_crash_left_half_written_go(path):
    write(path, *cluster.big(3, 1))
    old = f"{path}.lost-000001-0000000001-deadbeef"
    touch(f"{old}.new", f"{old}.new-wal", f"{old}.new-shm", f"{old}0.new-wal")
    kept = keep(path)
    assert beside(path) == [kept]


def test_what_a_crash_left_of_the_same_file_goes(path):
    write(path, *cluster.big(3, 1))
    kept = keep(path)
    os.rename(kept, f"{kept}.new")
    touch(f"{kept}.new-wal", f"{kept}.new-shm")
    assert keep(path) == kept
    assert beside(path) == [kept]
    assert branches.read(kept).groups


def test_companions_of_a_removed_file_go_with_it(path):
    write(path, *cluster.big(3, 1))
    first = keep(path)
    touch(f"{first}-wal", f"{first}-shm")
    for number in range(branches.KEPT):
        write(path, Document("jobs", str(number), b"{}"))
        keep(path)
    assert not os.path.exists(first)
    assert beside(path) == branches.files(path)
