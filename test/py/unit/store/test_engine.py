"""The engine when the disk fails."""

import pytest

from fakes import cluster
from fakes.patience import until
from fakes.store import MemoryBackend, open_memory
from ganeti import errors
from ganeti.objects import Update
from ganeti.store import Document, engine


@pytest.fixture
def backend():
    return MemoryBackend()


@pytest.fixture
def db(backend, monkeypatch):
    monkeypatch.setattr(engine, "RETRY_S", 0.01)
    actual = open_memory(backend)
    yield actual
    actual.close()


def test_a_failed_commit_changes_nothing_and_the_store_goes_on(db, backend):
    db.commit(cluster.updates(cluster.example_data()))
    backend.failure = errors.StorageError("disk full")
    with pytest.raises(errors.StorageError, match="disk full"), db.writing() as batch:
        old = batch.snapshot.cluster
        batch.put(Update("cluster", "", old.replace(serial_no=99)))
    with pytest.raises(errors.StorageError, match="disk full"):
        db.commit([Document("jobs", "1", b"{}")])
    assert db.snapshot().cluster.serial_no == 4
    backend.failure = None
    until("the probe", lambda: not db.exposure())
    assert db.commit([Document("jobs", "1", b"{}")]) == 2
    with db.writing() as batch:
        assert batch.snapshot.cluster.serial_no == 4


def test_a_callback_is_informed_of_the_failure(db, backend):
    backend.failure = errors.StorageError("disk full")
    reported = []
    db.commit_soon([Document("jobs", "1", b"")], lambda *args: reported.append(args))
    with pytest.raises(errors.StorageError):
        db.commit([Document("jobs", "2", b"")])
    assert [str(error) for _revision, error in reported] == ["disk full"]


def test_a_deposed_master_writes_nothing_more(backend):
    old = open_memory(backend)
    new = open_memory(backend)
    with pytest.raises(errors.TermError, match="term 1 is over"):
        old.commit([Document("jobs", "1", b"")])
    with pytest.raises(errors.TermError), old.writing():
        pass
    assert new.commit([Document("jobs", "1", b"")]) == 1
    old.close()
    new.close()
