"""A candidate's copy, called as the node daemon calls it."""

import pytest

from fakes import cluster
from fakes.store import MemoryBackend, open_memory
from ganeti import errors, store
from ganeti.quorum import Term
from ganeti.store import Document


@pytest.fixture
def copy(tmp_path):
    found = store.Replica(str(tmp_path / "store.db"))
    yield found
    found.close()


@pytest.fixture
def groups():
    """Return three change-sets of a master."""
    backend = MemoryBackend()
    db = open_memory(backend)
    db.commit(cluster.updates(cluster.example_data()))
    db.commit([Document("jobs", "1", b"{}")])
    db.commit([Document("jobs", "1", None), Document("archive", "1", b"{}")])
    db.close()
    return backend.changes_since(0, None)


def test_a_node_without_a_copy_is_at_zero_and_makes_no_file(copy, tmp_path):
    assert copy.status() == {
        "revision": 0,
        "term": 0,
        "owner": "",
        "digest": "00" * 16,
        "written": 0,
        "cluster": "",
    }
    assert list(tmp_path.iterdir()) == []


def test_changes_are_applied_in_order_only(copy, groups):
    send = store.wire.encode_batch
    assert copy.apply(Term(1), 0, send(groups[:1]))["applied"]
    assert not copy.apply(Term(1), 2, send(groups[2:]))["applied"]
    assert not copy.apply(Term(1), 0, send(groups[:1]))["applied"]
    answer = copy.apply(Term(1), 1, send(groups[1:]))
    assert answer == {
        "revision": 3,
        "term": 1,
        "owner": "",
        "digest": groups[2].digest.hex(),
        "written": 1,
        "cluster": cluster.example().cluster.uuid,
        "applied": True,
    }
    assert copy.status() == {k: v for k, v in answer.items() if k != "applied"}


def test_half_a_batch_is_never_applied(copy, groups):
    broken = [groups[0], groups[2]]
    assert not copy.apply(Term(1), 0, store.wire.encode_batch(broken))["applied"]
    assert copy.status()["revision"] == 0


def test_damaged_changes_are_refused(copy, groups):
    changed = groups[0]._replace(payload=groups[1].payload)
    with pytest.raises(errors.StorageError, match="digest is wrong"):
        copy.apply(Term(1), 0, store.wire.encode_batch([changed]))
    with pytest.raises(errors.StorageError, match="change-set"):
        copy.apply(Term(1), 0, "no base64!")
    with pytest.raises(errors.StorageError, match="copy of the store"):
        copy.install(Term(1), "AAAA")
    assert copy.status()["revision"] == 0


def test_a_lower_term_is_refused(copy, groups):
    copy.apply(Term(5), 0, store.wire.encode_batch(groups[:1]))
    with pytest.raises(errors.TermError, match="term 4 is over"):
        copy.apply(Term(4), 1, store.wire.encode_batch(groups[1:2]))
    assert copy.status()["revision"] == 1
    assert copy.apply(Term(6), 1, store.wire.encode_batch(groups[1:2]))["term"] == 6


def test_a_damaged_copy_is_replaced(copy, tmp_path):
    (tmp_path / "store.db").write_bytes(b"this is no database, but long enough" * 99)
    assert copy.status()["revision"] == 0
    backend = MemoryBackend()
    db = open_memory(backend)
    db.commit([Document("jobs", "7", b"{}")])
    db.close()
    answer = copy.install(Term(1), store.wire.encode_copy(backend.dump()))
    assert answer["revision"] == 1
    assert (tmp_path / "store.db.damaged").exists()
    follower = store.Follower(str(tmp_path / "store.db"))
    assert follower.snapshot().revision == 1
    follower.close()


def test_a_closed_file_is_complete_even_while_it_is_followed(copy, groups, tmp_path):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups))
    follower = store.Follower(copy.path)
    copy.close()
    (tmp_path / "backup.db").write_bytes((tmp_path / "store.db").read_bytes())
    backup = store.Follower(str(tmp_path / "backup.db"))
    assert backup.snapshot().revision == 3
    backup.close()
    follower.close()


def test_purging_removes_all_files(copy, groups, tmp_path):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups))
    copy.purge()
    assert list(tmp_path.iterdir()) == []
    copy.purge()


def test_what_another_cluster_left_is_replaced_whatever_its_term(copy, groups):
    copy.apply(Term(50), 0, store.wire.encode_batch(groups))
    data = cluster.example_data()
    data["cluster"]["uuid"] = "another"
    backend = MemoryBackend()
    db = open_memory(backend)
    db.commit(cluster.updates(data))
    db.close()
    answer = copy.install(Term(1), store.wire.encode_copy(backend.dump()))
    assert (answer["term"], answer["cluster"]) == (1, "another")
    follower = store.Follower(copy.path)
    assert follower.read("archive", "1") is None
    follower.close()
    with pytest.raises(errors.TermError, match="term 0 is over"):
        copy.install(Term(0), store.wire.encode_copy(backend.dump()))
