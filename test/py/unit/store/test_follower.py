"""Reading the store of another process."""

import pytest

from fakes import cluster
from ganeti import errors, store
from ganeti.clock import SystemClock
from ganeti.objects import Update
from ganeti.quorum import Term
from ganeti.store import Document


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def db(path):
    found = store.open_master(path, replicate=None, clock=SystemClock())
    found.commit(cluster.updates(cluster.example_data()))
    yield found
    found.close()


@pytest.fixture
def follower(db, path):
    found = store.Follower(path)
    yield found
    found.close()


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


def test_a_replaced_history_is_read_anew(db, follower, path, tmp_path):
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
