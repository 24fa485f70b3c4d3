"""Reading the store of another process."""

import os
import signal
import tempfile

import pytest

from fakes import cluster
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Update
from ganeti.store import Document


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def db(path):
    actual = store.open_master(path, replicate=None, clock=SystemClock())
    actual.commit(cluster.updates(cluster.example_data()))
    yield actual
    actual.close()


@pytest.fixture
def follower(db, path):
    actual = store.Follower(path)
    yield actual
    actual.close()


def test_it_begins_with_all_there_is(db, follower):
    assert follower.snapshot().nodes == db.snapshot().nodes
    assert follower.poll().is_empty


def test_news_are_the_changes_in_order(db, follower):
    key, node = next(iter(db.snapshot().nodes.items()))
    update = Update("nodes", key, node.replace(offline=True))
    db.commit([update])
    db.commit([Document("jobs", "1", b"{}")])
    news = follower.poll()
    seen = [
        [change for change in item.changes if change.key != "voters"]
        for item in news.change_sets
    ]
    assert seen == [[update], [Document("jobs", "1", b"{}")]]
    assert not news.is_reload
    assert follower.snapshot().nodes[key].offline
    assert follower.snapshot().revision == db.snapshot().revision == 3
    assert follower.poll().is_empty


def test_a_replaced_history_is_read_again(db, follower, path, tmp_path):
    other = store.Replica(path)
    copy = store.wire.Copy(9, 2, b"x" * 16, [])
    other.install(Term(2), store.wire.encode_copy(store.wire.pack_copy(copy)))
    other.close()
    news = follower.poll()
    assert news.is_reload
    assert not follower.snapshot().nodes
    assert follower.snapshot().revision == 9


def test_it_survives_that_the_file_goes_and_comes_back(db, follower, path):
    db.close()
    store.Replica(path).purge()
    with pytest.raises(errors.ConfigurationError, match="no such database"):
        follower.poll()
    assert follower.snapshot().nodes
    again = store.open_master(path, replicate=None, clock=SystemClock())
    assert follower.poll().is_reload
    assert not follower.snapshot().nodes
    again.commit([Document("jobs", "1", b"")])
    assert len(follower.poll().change_sets) == 1
    again.close()


#: A user and a group without rights of any kind.
@pytest.fixture
def outdated(follower, monkeypatch):
    """Let the file look replaced for some looks at it; return their numbers, in turn."""
    looks = []
    monkeypatch.setattr(
        type(follower._db.file),
        "is_outdated",
        lambda _self: bool(looks and looks.pop(0)),
    )
    return looks


def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(follower, outdated):
    outdated += [True, True, True, False]
    assert follower.poll().is_reload
    assert follower.snapshot().nodes
    assert outdated == []


def test_a_file_that_changes_all_the_time_is_given_up(follower, outdated):
    outdated += [True] * 21
    with pytest.raises(errors.StorageError, match="changes all the time"):
        follower.poll()
    assert outdated == []


def test_a_document_is_read_from_the_file_that_is_there_now(db, follower, outdated):
    db.commit([Document("jobs", "1", b"{}")])
    outdated += [True, True, False]
    assert follower.read("jobs", "1") == b"{}"
    assert outdated == []
    # The snapshot follows with the next look, even if the file is the former one.
    assert not follower.poll().is_empty


def test_a_closed_file_is_not_read(follower, path):
    follower.close()
    closed = f"^{path}: closed"
    with pytest.raises(errors.ConfigurationError, match=closed):
        follower.read("jobs", "1")
    with pytest.raises(errors.ConfigurationError, match=closed):
        follower.is_below_replaced()
    with pytest.raises(errors.ConfigurationError, match=closed):
        list(follower.scan("jobs"))


NOBODY = 65534


@pytest.fixture
def shared():
    """A directory as /var/lib/ganeti is: others may enter but not write."""
    if os.getuid() != 0:
        pytest.skip("becoming another user needs root")
    with tempfile.TemporaryDirectory(prefix="follower-") as name:
        os.chmod(name, 0o755)
        os.chown(name, -1, NOBODY)
        old = os.umask(0o077)
        yield f"{name}/store.db"
        os.umask(old)


def as_nobody(function):
    """Run a function in a child of another user; return the text that it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            text = function()
        except Exception as err:  # noqa: BLE001 - the parent asserts
            text = repr(err)
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def read_all(path):
    follower = store.Follower(path)
    try:
        nodes = len(follower.snapshot().nodes)
        job = follower.read("jobs", "1")
        return f"{nodes} {follower.snapshot().revision} {job}"
    finally:
        follower.close()


def test_another_user_reads_while_the_store_is_written_and_while_it_is_closed(shared):
    db = store.open_master(shared, replicate=None, clock=SystemClock())
    db.commit(cluster.updates(cluster.example_data()))
    db.commit([Document("jobs", "1", b"{}")])
    wanted = f"{len(db.snapshot().nodes)} 2 {b'{}'}"
    for suffix in ("", "-wal", "-shm"):
        info = os.stat(f"{shared}{suffix}")
        assert (info.st_mode & 0o777, info.st_gid) == (0o640, NOBODY), suffix
    assert as_nobody(lambda: read_all(shared)) == wanted
    db.close()
    assert not os.path.exists(f"{shared}-wal")
    assert as_nobody(lambda: read_all(shared)) == wanted


def test_another_user_reads_what_a_killed_writer_left(shared):
    child = os.fork()
    if child == 0:
        db = store.open_master(shared, replicate=None, clock=SystemClock())
        db.commit(cluster.updates(cluster.example_data()))
        db.commit([Document("jobs", "1", b"{}")])
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert os.path.getsize(f"{shared}-wal")
    assert as_nobody(lambda: read_all(shared)).endswith(f" 2 {b'{}'}")


def test_it_follows_writers_that_come_and_go(shared):
    def write(number):
        db = store.open_master(shared, replicate=None, clock=SystemClock())
        if number == 0:
            db.commit(cluster.updates(cluster.example_data()))
        db.commit([Document("jobs", "1", b"%d" % number)])
        return db

    write(0).close()
    follower = store.Follower(shared)
    assert follower.poll().is_empty
    for number in (1, 2):
        db = write(number)
        assert not follower.poll().is_empty
        assert follower.read("jobs", "1") == b"%d" % number
        db.commit([Document("jobs", "1", b"more")])
        assert follower.read("jobs", "1") == b"more"
        assert not follower.poll().is_empty
        db.commit([Document("jobs", "1", b"last")])
        db.close()
        assert follower.read("jobs", "1") == b"last"
        follower.poll()
        assert follower.poll().is_empty
    follower.close()


def test_a_reader_makes_no_files(shared):
    store.open_master(shared, replicate=None, clock=SystemClock()).close()
    before = os.stat(shared)
    store.Follower(shared).close()
    assert os.listdir(os.path.dirname(shared)) == ["store.db"]
    assert os.stat(shared).st_mtime_ns == before.st_mtime_ns
