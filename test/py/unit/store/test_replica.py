"""A candidate's copy, called as the node daemon calls it."""

import pytest

from fakes import cluster
from fakes.store import MemoryBackend, open_memory
from ganeti import store
from ganeti.base import errors
from ganeti.decisions.quorum import Term
from ganeti.store import Document, database, features
from ganeti.store import backend as backend_module
from ganeti.store.copies import branches


@pytest.fixture
def copy(tmp_path):
    actual = store.Replica(str(tmp_path / "store.db"))
    yield actual
    actual.close()


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
        "archive": "",
        "serial": 0,
        "last_job": 0,
        "replaced_revision": 0,
        "replaced_serial": 0,
        "replaced_last_job": 0,
        "features": features.to_status(),
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
        "archive": "",
        "features": features.to_status(),
        "applied": True,
    }
    del answer["applied"]
    assert copy.status() == answer | {
        "serial": 0,
        "last_job": 0,
        "replaced_revision": 0,
        "replaced_serial": 0,
        "replaced_last_job": 0,
    }


def test_changes_make_no_copy_where_it_was_removed(copy, groups, tmp_path):
    send = store.wire.encode_batch
    copy.apply(Term(1), 0, send(groups[:1]))
    copy.purge()
    answer = copy.apply(Term(1), 1, send(groups[1:]))
    assert (answer["applied"], answer["revision"]) == (False, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_leaves_takes_no_copy_any_more(copy, groups, tmp_path):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups[:1]))
    whole = copy.dump()
    copy.leave()
    for call in (
        lambda: copy.install(Term(1), whole),
        lambda: copy.promise(Term(2)),
        lambda: copy.apply(Term(1), 0, store.wire.encode_batch(groups[:1])),
    ):
        with pytest.raises(errors.StorageError, match="has left the cluster"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_comes_late_replaces_no_newer_one_of_its_master(copy, groups):
    send = store.wire.encode_batch
    copy.apply(Term(1), 0, send(groups[:2]))
    old = copy.dump()
    copy.apply(Term(1), 2, send(groups[2:]))
    with pytest.raises(errors.StorageError, match="wanted a copy of revision 3"):
        copy.install(Term(1), old)
    assert copy.status()["revision"] == 3
    # Another master may have to leave out what no majority had.
    copy.install(Term(2, "other"), old)
    assert copy.status()["revision"] == 2


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


def test_purging_removes_lost_histories(copy, groups, tmp_path):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups))
    for name in ("000001-0000000001-deadbeef", "000001-0000000002-deadbeef.new-wal"):
        (tmp_path / f"store.db.lost-{name}").write_bytes(b"lost")
    (tmp_path / "store.db.other").write_bytes(b"not ours")
    copy.purge()
    assert [path.name for path in tmp_path.iterdir()] == ["store.db.other"]


@pytest.mark.parametrize(("promised", "known"), [(Term(2, "b"), 0), (None, 2)])
def test_purging_lists_what_no_later_master_has_compared(
    copy, groups, tmp_path, promised, known
):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups))
    if promised:
        copy.promise(promised)
    copy.purge(known)
    (path,) = branches.files(copy.path)
    assert [str(each) for each in tmp_path.iterdir()] == [path]
    branch = branches.read(path)
    assert not branch.is_compared
    assert [group.revision for group in branch.groups] == [1, 2, 3]
    assert "set archive 1" in branch.groups[2].changes
    assert [job.job_id for job in branch.jobs] == [1]


def test_purging_lists_only_the_changes_of_the_last_master(copy, tmp_path):
    """That master compared the copy with its own, so the changes before are known."""
    backend = MemoryBackend()
    for number in (1, 2):
        db = open_memory(backend)
        db.commit([Document("jobs", str(number), b"{}")])
        db.close()
    groups = backend.changes_since(0, None)
    assert [group.term for group in groups] == [1, 2]
    copy.apply(Term(1), 0, store.wire.encode_batch(groups[:1]))
    copy.apply(Term(2), 1, store.wire.encode_batch(groups[1:]))
    copy.purge(3)
    (path,) = branches.files(copy.path)
    (group,) = branches.read(path).groups
    assert (group.revision, list(group.changes)) == (2, ["set jobs 2"])


def test_purging_lists_nothing_that_the_present_master_has_written(
    copy, groups, tmp_path
):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups))
    copy.purge(1)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_copy_is_purged_all_the_same(copy, groups, tmp_path):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups))
    copy.close()
    (tmp_path / "store.db").write_bytes(b"x" * 10_000)
    copy.purge(2)
    assert list(tmp_path.iterdir()) == []


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


def damage(path):
    """Overwrite the pages with jobs; what is read when a file is opened remains."""
    data = bytearray(path.read_bytes())
    for start in range(0, len(data), 4096):
        if b"x" * 200 in data[start : start + 4096]:
            data[start : start + 4096] = b"\xff" * 4096
    with path.open("r+b") as file:
        file.write(data)


@pytest.fixture
def big(copy, tmp_path):
    """A copy of many pages, and the master's backend."""
    backend = MemoryBackend()
    db = open_memory(backend)
    db.commit(cluster.updates(cluster.example_data()))
    db.commit([Document("jobs", f"{n:04}", b"x" * 900) for n in range(400)])
    db.close()
    copy.apply(Term(7, "m"), 0, store.wire.encode_batch(backend.changes_since(0, None)))
    copy.close()
    file = database.Database(copy.path, create=False)
    file.log.forget(file.log.groups())
    file.close()
    return backend


@pytest.mark.parametrize("first", ["status", "promise", "apply", "install"])
def test_a_copy_with_damaged_inner_pages_is_set_aside(copy, big, tmp_path, first):
    path = tmp_path / "store.db"
    damage(path)
    changed = Document("jobs", "0300", b"{}")
    db = open_memory(big)
    db.commit([changed])
    db.close()
    news = store.wire.encode_batch(big.changes_since(2, None))
    whole = store.wire.encode_copy(big.dump())
    if first == "status":
        assert copy.status()["revision"] == 0
    elif first == "promise":
        assert copy.promise(Term(7, "m"))["revision"] == 0
    elif first == "apply":
        assert not copy.apply(Term(7, "m"), 2, news)["applied"]
    assert copy.install(Term(7, "m"), whole)["revision"] == 3
    assert (tmp_path / "store.db.damaged").exists()
    # The promise that the damaged file held is still kept.
    with pytest.raises(errors.TermError):
        copy.promise(Term(6, "other"))


def test_damage_that_comes_while_the_copy_is_open_is_noticed(copy, big, tmp_path):
    term, path = Term(7, "m"), tmp_path / "store.db"
    copy.promise(term)
    copy._db.file.sql.execute("PRAGMA shrink_memory")
    damage(path)
    whole = store.wire.encode_copy(big.dump())
    copy.install(term, whole)
    assert copy.install(term, whole)["revision"] == 2
    assert (tmp_path / "store.db.damaged").exists()
    copy.purge()
    assert list(tmp_path.iterdir()) == []


def future_group(parent, rows):
    payload = store.wire.encode_rows(rows)
    digest = backend_module.chain(parent.digest, payload)
    base = parent.revision
    return backend_module.Group(base, base + 1, 1, parent.digest, digest, payload)


def test_tables_of_a_newer_release_are_kept_and_passed_on(copy, groups, tmp_path):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups))
    rows = [("volumes", "v1", b"new"), ("volumes", "v2", b"x")]
    first = future_group(groups[-1], rows)
    second = future_group(first, [("volumes", "v2", None), ("jobs", "7", b"{}")])
    answer = copy.apply(Term(1), 3, store.wire.encode_batch([first, second]))
    assert (answer["applied"], answer["revision"]) == (True, 5)
    whole = store.wire.decode_copy(copy.dump())
    assert [row for row in whole.rows if row[0] == "volumes"] == [rows[0]]
    other = store.Replica(str(tmp_path / "other.db"))
    for _again in range(2):
        other.install(Term(2), store.wire.encode_copy(store.wire.pack_copy(whole)))
    assert store.wire.decode_copy(other.dump()).rows == whole.rows
    other.close()
    follower = store.Follower(copy.path)
    assert follower.snapshot().nodes
    follower.close()


@pytest.mark.parametrize("table", ["state", "changelog", "sqlite_master", "a b", "x'"])
def test_names_that_can_be_no_table_of_ours_are_refused(copy, groups, table):
    copy.apply(Term(1), 0, store.wire.encode_batch(groups))
    group = future_group(groups[-1], [(table, "k", b"x")])
    with pytest.raises(errors.StorageError, match="unknown table"):
        copy.apply(Term(1), 3, store.wire.encode_batch([group]))
    assert copy.status()["revision"] == 3
