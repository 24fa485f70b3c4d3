"""A fork shows the store below and its own changes, and leaves the store alone."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from ganeti.base import errors
from ganeti.model.objects import Update
from ganeti.store import Document, Fork

N1 = clusters.node_uuid(1)


@pytest.fixture
def below():
    store = Engine(clusters.snapshot(nodes=2)).store
    store.commit([Document("meta", "a", b"1"), Document("meta", "c", b"3")])
    return store


def drained(snapshot):
    return Update("nodes", N1, snapshot.nodes[N1].replace(drained=True))


def test_changes_stay_in_the_fork(below):
    before = below.snapshot()
    fork = Fork(below)
    with fork.writing() as batch:
        batch.put(drained(batch.snapshot))
        assert batch.snapshot.nodes[N1].drained
        assert not fork.snapshot().nodes[N1].drained
    assert fork.snapshot().nodes[N1].drained
    assert fork.snapshot().revision == before.revision + 1
    assert fork.start is below.snapshot() is before


def test_a_body_that_fails_changes_nothing(below):
    fork = Fork(below)
    with pytest.raises(ZeroDivisionError), fork.writing() as batch:
        batch.put(drained(batch.snapshot))
        1 / 0  # noqa: B018
    assert fork.snapshot() is fork.start


def test_later_changes_below_are_not_seen(below):
    fork = Fork(below)
    below.commit([drained(below.snapshot())])
    assert not fork.snapshot().nodes[N1].drained


def test_documents_are_laid_over_those_below(below):
    fork = Fork(below)
    reported = []
    changes = [Document("meta", "b", b"2"), Document("meta", "c", None)]
    fork.commit_soon(changes, lambda *done: reported.append(done))
    assert reported == [(fork.snapshot().revision, None)]
    assert list(fork.scan("meta")) == [("a", b"1"), ("b", b"2")]
    assert (fork.read("meta", "a"), fork.read("meta", "c")) == (b"1", None)
    assert list(fork.scan("meta", "b")) == [("b", b"2")]
    assert [key for key, _ in below.scan("meta")] == ["a", "c"]


def test_followers_get_the_forks_own_changes(below):
    fork = Fork(below)
    start = fork.start.revision
    first = fork.commit([drained(fork.snapshot())])
    second = fork.commit([Document("meta", "b", b"2")])
    assert fork.commit([]) == second
    actual = list(fork.follow(start))
    assert (
        [item.revision for item in actual] == [first, second] == [start + 1, start + 2]
    )
    assert [item.revision for item in fork.follow(first)] == [second]
    with pytest.raises(errors.StorageError, match="begins at revision"):
        fork.follow(start - 1)
