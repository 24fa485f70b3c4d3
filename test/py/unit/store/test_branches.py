"""Kept files of lost histories: how many, and nothing beside them."""

import glob
import os
import stat

import pytest

from fakes import cluster
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.quorum import Copy
from ganeti.store import Document, wire
from ganeti.store.copies import branches
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
    kept = branches.files(path)
    assert [each for each in kept if not each.endswith(".json")] == beside(path)
    assert os.path.basename(kept[0]).startswith("lost-changes-")


def test_of_the_oldest_file_a_summary_remains(path):
    engine = store.open_master(path, replicate=None, clock=SystemClock())
    engine.commit([Document("secrets", "of-web1", b"hunter2")])
    engine.close()
    keep(path)
    for number in range(branches.KEPT):
        write(path, Document("jobs", str(number), b"{}"))
        keep(path)
    first = branches.read(branches.files(path)[0])
    assert [group.changes for group in first.groups] == [["set secrets of-web1"]]
    assert (first.is_complete, first.is_compared) == (False, True)
    with open(first.path, "rb") as stream:
        assert b"hunter2" not in stream.read()
    assert stat.S_IMODE(os.stat(first.path).st_mode) == 0o600


def test_summaries_are_limited_too(path):
    for number in range(branches.KEPT + 25):
        write(path, Document("jobs", str(number), b"{}"))
        keep(path)
    names = [os.path.basename(each) for each in branches.files(path)]
    assert sum(name.startswith("lost-changes-") for name in names) == 20


def test_a_summary_that_cannot_be_read_is_named(path):
    broken = os.path.join(os.path.dirname(path), "lost-changes-1.json")
    touch(broken)
    assert branches.files(path) == [broken]
    with pytest.raises(errors.ConfigurationError, match=r"lost-changes-1\.json: "):
        branches.read(broken)


# Copies of a minority's master that are noted, from answers that may be anything.

DIGEST = "0f" * 16
STATUS = {"cluster": "c", "written": 5, "digest": DIGEST}


@pytest.mark.parametrize(("number", "expected"), [(4, DIGEST), (5, DIGEST), (6, "")])
def test_a_copy_of_an_earlier_term_is_not_noted(number, expected):
    assert branches.newer(STATUS, "c", number) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        STATUS | {"cluster": "other"},
        STATUS | {"written": None},
        STATUS | {"written": "x"},
        STATUS | {"digest": 7},
        STATUS | {"digest": "0f"},
        STATUS | {"digest": DIGEST + "0f"},
        STATUS | {"digest": "g" * 32},
    ],
)
def test_a_wrong_answer_is_no_such_copy(wrong):
    assert branches.newer(wrong, "c", 5) == ""


def test_only_the_copy_that_was_noted_does_not_count():
    note = branches.document("n2", DIGEST)
    noted = {(note.table, note.key): note.data}

    def read(table, key):
        return noted.get((table, key))

    copies = {
        "n1": Copy(5, 9, DIGEST),
        "n2": Copy(5, 9, DIGEST),
        "n3": Copy(0, 0),
    }
    actual = branches.without_known(read, copies)
    assert [node for node, copy in actual.items() if copy.is_empty] == ["n2", "n3"]
    copies["n2"] = Copy(5, 10, "1f" * 16)
    assert branches.without_known(read, copies) == copies
