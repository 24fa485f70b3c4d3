"""The database file: damage, versions, full disks, the bounded log."""

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import threading
import zlib
from concurrent import futures

import pytest

from fakes import cluster
from fakes.patience import until
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.model.objects import Network, Update
from ganeti.store import Document, committer, database, schema, storefile, tables

_MAKERS = 4


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


def open_master(path):
    return store.open_master(path, replicate=None, clock=SystemClock())


def test_the_file_is_private(path, tmp_path):
    open_master(path).close()
    assert (tmp_path / "store.db").stat().st_mode & 0o777 & ~0o640 == 0


def test_each_commit_is_synced_and_so_is_the_name_of_a_new_file(path, monkeypatch):
    synced, sync = [], os.fsync

    def note(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(storefile.os, "fsync", note)
    made = database.Database(path, create=True)
    # SQLite's level FULL has the number 2; NORMAL loses commits in a power cut.
    assert made.file._pragma("synchronous") == 2
    assert made.file._pragma("journal_mode") == "wal"
    made.close()
    assert synced == [os.path.dirname(path)]
    again = database.Database(path, create=False)
    assert again.file._pragma("synchronous") == 2
    again.close()


def test_a_file_set_aside_has_no_companions_of_the_one_before(tmp_path):
    path, aside = str(tmp_path / "store.db"), str(tmp_path / "aside")
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"aside{suffix}").write_text("before")
    (tmp_path / "store.db").write_text("new")
    schema.set_aside(path, aside)
    assert [p.name for p in tmp_path.iterdir()] == ["aside"]
    assert (tmp_path / "aside").read_text() == "new"


def test_a_file_of_another_version_is_refused(path):
    open_master(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(errors.ConfigurationError, match="knows version 99"):
        open_master(path)


def test_a_strange_database_is_refused(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE x (y)")
    db.close()
    with pytest.raises(errors.ConfigurationError, match="not a store"):
        open_master(path)


def test_a_file_that_is_no_database_is_refused(path, tmp_path):
    (tmp_path / "store.db").write_bytes(b"garbage " * 1000)
    with pytest.raises(errors.ConfigurationError, match="damaged"):
        open_master(path)


def test_damage_inside_is_noticed_when_opening(path, tmp_path):
    db = open_master(path)
    db.commit(cluster.big(5, 200))
    db.close()
    file = tmp_path / "store.db"
    data = bytearray(file.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\xff" * 4096
    file.write_bytes(data)
    with pytest.raises(errors.ConfigurationError, match="damaged"):
        open_master(path)


def test_a_record_that_cannot_be_read_is_named(path):
    db = open_master(path)
    db.commit([Document("jobs", "1", b"")])
    db.close()
    raw = sqlite3.connect(path)
    raw.execute("INSERT INTO nodes VALUES ('n1', '{}')")
    raw.commit()
    raw.close()
    with pytest.raises(errors.ConfigurationError, match=r"Node: .*name"):
        open_master(path)


def test_a_missing_directory_is_a_storage_error(tmp_path):
    with pytest.raises(errors.StorageError, match="No such file"):
        open_master(str(tmp_path / "nowhere" / "store.db"))


def test_a_full_disk_fails_the_commit_and_nothing_else(path, monkeypatch):
    monkeypatch.setattr(committer, "RETRY_S", 0.01)
    db = open_master(path)
    db.commit(cluster.updates(cluster.example_data()))
    before = db.snapshot()
    raw = db._backend._writer.file.sql
    pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(errors.StorageError, match="full"):
        db.commit([Document("jobs", "1", b"x" * 100_000)])
    assert db.snapshot() is before
    assert db.read("jobs", "1") is None
    raw.execute("PRAGMA max_page_count = 1000000")
    until("the probe", lambda: not db.exposure())
    assert db.commit([Document("jobs", "1", b"y")]) == 2
    db.close()
    again = open_master(path)
    assert again.read("jobs", "1") == b"y"
    assert again.snapshot().revision == 2
    again.close()


def test_the_change_log_is_bounded(path, monkeypatch):
    monkeypatch.setattr(database, "LOG_BYTES", 10_000)
    db = open_master(path)
    for number in range(50):
        db.commit([Document("jobs", str(number), b"x" * 1000)])
    kept = db._backend.changes_since(45, None)
    assert [group.revision for group in kept] == [46, 47, 48, 49, 50]
    assert db._backend.changes_since(20, None) is None
    db.close()
    again = open_master(path)
    with pytest.raises(errors.StorageError, match="no longer kept"):
        next(again.follow(20))
    again.commit([Document("jobs", "x", b"x" * 5000)])
    assert again._backend.changes_since(45, None) is None
    assert len(again._backend.changes_since(48, None)) == 3
    again.close()


def test_forgotten_groups_leave_room_in_the_change_log(path):
    db = open_master(path)
    db.commit([Document("jobs", str(number), b"x" * 1000) for number in range(50)])
    db.commit([Document("jobs", "x", b"x")])
    db.close()
    file = database.Database(path, create=False)
    room = database.LOG_BYTES - sum(len(each.payload) for each in file.log.groups()[1:])
    file.log.forget(file.log.groups()[:1])
    assert file.log.excess(room) == []
    assert file.log.excess(room + 1) == [2]
    file.close()


def test_two_masters_on_one_file_do_not_both_write(path):
    first = open_master(path)
    first.commit([Document("jobs", "1", b"first")])
    second = open_master(path)
    assert second.term.number == first.term.number + 1
    with pytest.raises(errors.TermError, match="term 1 is over"):
        first.commit([Document("jobs", "1", b"late")])
    second.commit([Document("jobs", "1", b"second")])
    assert first.read("jobs", "1") == b"second"
    first.close()
    second.close()


def test_a_long_scan_goes_page_by_page(path, monkeypatch):
    monkeypatch.setattr("ganeti.store.sqlite.SCAN_ROWS", 7)
    monkeypatch.setattr(tables, "SCAN_ROWS", 7)
    db = open_master(path)
    keys = sorted(str(number) for number in range(50))
    db.commit([Document("archive", key, b"") for key in keys])
    scan = db.scan("archive")
    actual = [next(scan)[0]]
    db.commit([Document("archive", "0", None)])
    assert actual + [key for key, _data in scan] == keys
    db.close()


def test_several_may_make_a_file_at_once(tmp_path):
    def make(name, start):
        start.wait(60)
        database.Database(str(tmp_path / name), create=True).close()

    with futures.ThreadPoolExecutor(_MAKERS) as pool:
        for number in range(20):
            start = threading.Barrier(_MAKERS)
            name = f"{number}.db"
            made = [pool.submit(make, name, start) for _ in range(_MAKERS)]
            assert [one.result(60) for one in made] == [None] * _MAKERS


def test_opening_a_file_again_keeps_the_locks_of_this_process(path):
    first = database.Database(path, create=True)
    database.Database(path, create=True).close()
    text = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=0)"
    other = f"{text}; db.execute('PRAGMA journal_mode = DELETE')"
    reported = subprocess.run(
        [sys.executable, "-c", other, path], capture_output=True, check=False
    )
    first.close()
    assert b"database is locked" in reported.stderr


def test_a_full_disk_refuses_changes_until_a_probe_succeeds(path, monkeypatch):
    monkeypatch.setattr(committer, "RETRY_S", 0.02)
    db = open_master(path)
    db.commit(cluster.updates(cluster.example_data()))
    full = errors.StorageError("no space left on device")
    real = db._backend.write
    tries = []

    def write(group):
        tries.append(group)
        raise full

    monkeypatch.setattr(db._backend, "write", write)
    monkeypatch.setattr(db._backend, "probe", raising(full))
    with pytest.raises(errors.StorageError, match="no space left"):
        db.commit([Document("jobs", "1", b"x")])
    for _attempt in range(3):
        with pytest.raises(errors.StorageError, match="changes are refused until"):
            db.commit([Document("jobs", "1", b"x")])
    assert len(tries) == 1
    assert "no space left" in db.exposure()
    monkeypatch.undo()
    monkeypatch.setattr(db._backend, "write", real)
    until("the disk", lambda: not db.exposure())
    assert db.commit([Document("jobs", "1", b"y")]) == 2
    db.close()


def raising(error):
    def call():
        raise error

    return call


def test_changes_of_a_large_address_pool_do_not_fill_the_log(path):
    db = open_master(path)
    size = 1 << 16
    chance = random.Random(4711)
    taken = "".join(chance.choices("01", (9, 1), k=size))
    network = Network(
        name="lan",
        network="10.0.0.0/16",
        uuid="net",
        serial_no=1,
        reservations=taken,
        ext_reservations="1" + "0" * (size - 2) + "1",
    )
    db.commit([Update("networks", "net", network)])
    for number in range(300):
        db.commit([Update("networks", "net", network.replace(serial_no=number))])
    groups = db._backend.changes_since(1, None)
    assert len(groups) == 300
    assert max(len(group.payload) for group in groups) < 20_000
    wanted = db.snapshot().networks
    db.close()
    again = open_master(path)
    assert again.snapshot().networks == wanted
    again.close()


@pytest.mark.parametrize("data", [b"x", b"xyz", zlib.compress(b"{}" * 9_000_000)])
def test_a_damaged_compressed_record_is_named(path, data):
    open_master(path).close()
    raw = sqlite3.connect(path)
    raw.execute("INSERT INTO networks VALUES ('n1', ?)", (data,))
    raw.commit()
    raw.close()
    with pytest.raises(errors.ConfigurationError, match="networks n1: compressed"):
        open_master(path)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO meta VALUES ('voters', x'01')",
        "INSERT OR REPLACE INTO meta VALUES ('features', x'01')",
        "UPDATE state SET revision = 'x'",
        "DELETE FROM state",
    ],
)
def test_damage_of_the_state_names_the_file(path, statement):
    """SQLite returns whatever a damaged page has, of any type."""
    open_master(path).close()
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.execute(statement)
        raw.commit()
    with pytest.raises(errors.ConfigurationError, match=r"store\.db: damaged"):
        open_master(path)


class Steps:
    """The time of the waiting steps; at the third one, something happens."""

    def __init__(self, monkeypatch, third=None):
        self.now = 100.0
        self.waits = []
        self._third = third
        monkeypatch.setattr(storefile, "time", self)
        # In seconds: four steps; SQLite itself gives up after a moment.
        monkeypatch.setattr(storefile, "BUSY_TIMEOUT_S", 0.02)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds
        if self._third is not None and len(self.waits) == 3:
            self._third()


@pytest.fixture
def holder(path):
    """Return a connection that lets nobody else read or write the file."""
    open_one = sqlite3.connect(path, isolation_level=None)
    open_one.execute("BEGIN EXCLUSIVE")
    yield open_one
    open_one.close()


def test_a_file_that_another_process_holds_is_waited_for(path, holder, monkeypatch):
    steps = Steps(monkeypatch, holder.close)
    made = database.Database(path, create=True)
    assert made.file._pragma("journal_mode") == "wal"
    made.close()
    assert len(steps.waits) == 3


def test_a_file_that_stays_held_is_given_up(path, holder, monkeypatch):
    steps = Steps(monkeypatch)
    with pytest.raises(errors.StorageError, match="database is locked"):
        database.Database(path, create=True)
    assert 4 <= len(steps.waits) <= 5


def test_another_failure_is_not_waited_for(path, monkeypatch):
    steps = Steps(monkeypatch)
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR

    def pragma(_self, _text):
        raise failure

    monkeypatch.setattr(storefile.StoreFile, "_pragma", pragma)
    with pytest.raises(errors.StorageError, match="disk I/O error"):
        database.Database(path, create=True)
    assert steps.waits == []


def test_a_file_that_is_set_aside_keeps_its_newest_commits(tmp_path):
    path, aside = str(tmp_path / "store.db"), str(tmp_path / "aside.db")
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("PRAGMA journal_mode = WAL")
    held.execute("CREATE TABLE x (y)")
    held.execute("INSERT INTO x VALUES (7)")
    schema.set_aside(path, aside)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "aside.db",
        "aside.db-shm",
        "aside.db-wal",
    ]
    # Its commits are in the log alone, as after a power cut.
    copy = sqlite3.connect(aside)
    assert copy.execute("SELECT y FROM x").fetchall() == [(7,)]
    copy.close()
    held.close()


def test_a_new_file_has_the_group_of_its_directory(tmp_path, monkeypatch):
    owners = []
    monkeypatch.setattr(schema.os, "fchown", lambda _fd, *ids: owners.append(ids))
    old = os.umask(0o077)
    try:
        schema.make_file(str(tmp_path / "new.db"))
    finally:
        os.umask(old)
    assert owners == [(-1, tmp_path.stat().st_gid)]
    assert (tmp_path / "new.db").stat().st_mode & 0o7777 == 0o640


def test_a_file_is_removed_after_its_companions(tmp_path, monkeypatch):
    names, unlink = [], os.unlink

    def note(path):
        names.append(os.path.basename(path))
        unlink(path)

    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"store.db{suffix}").write_text("x")
    monkeypatch.setattr(schema.os, "unlink", note)
    schema.remove_file(str(tmp_path / "store.db"))
    assert set(names[:2]) == {"store.db-wal", "store.db-shm"}
    assert names[2:] == ["store.db"]
    schema.remove_file(str(tmp_path / "store.db"))


def test_damage_and_failures_of_the_disk_are_different_errors(path):
    """Damage does not get better; a failure of the disk may."""
    for code, kind in (
        (sqlite3.SQLITE_CORRUPT, errors.ConfigurationError),
        (sqlite3.SQLITE_NOTADB, errors.ConfigurationError),
        # An extended code has its primary code in the lowest byte.
        (sqlite3.SQLITE_CORRUPT | 2 << 8, errors.ConfigurationError),
        (sqlite3.SQLITE_IOERR, errors.StorageError),
        (sqlite3.SQLITE_FULL, errors.StorageError),
    ):
        failure = sqlite3.DatabaseError("oh")
        failure.sqlite_errorcode = code
        with (
            pytest.raises(kind, match=r"store\.db: .*oh"),
            schema.translated(path),
        ):
            raise failure
    with (
        pytest.raises(errors.StorageError, match=r"store\.db: .*No space left"),
        schema.translated(path),
    ):
        raise OSError(28, "No space left on device")
    assert schema.state_of(path) is None
