"""Bytes of change-sets, copies and single values: exact forms, limits and errors."""

import base64
import sqlite3
import zlib

import msgspec
import pytest

from fakes import cluster, clusters
from ganeti.base import errors
from ganeti.decisions.quorum import Voters
from ganeti.model import objects
from ganeti.model.objects import Network, Update
from ganeti.store import Document, Follower, features, schema, wire
from ganeti.store.backend import NO_HISTORY, ArchivePage, Group
from ganeti.store.copies import candidates as peer_module
from ganeti.store.copies import voters
from ganeti.store.memory import MemoryBackend, open_memory

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)


# Rows
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("jobs", True),
        ("a", True),
        ("a" * 32, True),
        ("newer_table", True),
        ("a" * 33, False),
        ("", False),
        ("Jobs", False),
        ("_jobs", False),
        ("jobs;", False),
        ("jobs\n", False),
        ("state", False),
        ("changelog", False),
        ("sqlite_master", False),
    ],
)
def test_names_of_tables(name, expected):
    assert wire.is_table(name) is expected


def test_the_last_change_of_a_key_counts():
    changes = [
        Document("jobs", "1", b"a"),
        Document("jobs", "2", b"b"),
        Document("jobs", "1", None),
    ]
    assert wire.rows(changes) == [("jobs", "1", None), ("jobs", "2", b"b")]


def test_rows_of_a_table_that_cannot_be_are_refused():
    payload = wire.encode_rows([("jobs", "1", b"a"), ("state", "k", b"b")])
    with pytest.raises(errors.StorageError) as caught:
        wire.decode_rows(payload)
    assert caught.value.args == ("change-set: unknown table state (key k)",)
    for wrong in (b"", b"\xc1", msgspec.msgpack.encode({"a": 1})):
        with pytest.raises(errors.StorageError, match=r"^change-set: "):
            wire.decode_rows(wrong)


@pytest.mark.parametrize(
    ("row", "compressed", "archived"),
    [
        (("networks", "n", b"x1"), True, False),
        (("networks", "n", b"{x"), False, False),
        (("networks", "n", None), False, False),
        (("nodes", "n", b"x1"), False, False),
        (("archive", "1/1", b"[]"), False, True),
        (("archive", "1", b"{}"), False, False),
        (("archive", "1/1", None), False, False),
        (("joblogs", "1/1", b"[]"), False, False),
    ],
)
def test_rows_that_need_a_feature(row, compressed, archived):
    assert wire.is_compressed(row) is compressed
    assert wire.is_archived_log(row) is archived


@pytest.mark.parametrize(
    ("table", "size", "used", "compressed"),
    [
        ("networks", 4096, {features.COMPRESSED_NETWORKS}, True),
        ("networks", 4095, {features.COMPRESSED_NETWORKS}, False),
        ("networks", 4096, {features.POOL_ROWS}, False),
        ("nodes", 4096, {features.COMPRESSED_NETWORKS}, False),
    ],
)
def test_large_networks_are_compressed_where_all_can_read_it(
    table, size, used, compressed
):
    data = b"{" * size
    packed = wire._pack_record(table, data, used)
    assert (packed != data) is compressed
    assert packed.startswith(b"x") is compressed
    assert wire._unpack_record(packed) == data


def test_a_compressed_record_has_a_limit(monkeypatch):
    packed = zlib.compress(b"{" * 100)
    monkeypatch.setattr(wire, "_MAX_RECORD", 100)
    assert wire._unpack_record(packed) == b"{" * 100
    monkeypatch.setattr(wire, "_MAX_RECORD", 99)
    with pytest.raises(errors.ConfigurationError) as caught:
        wire._unpack_record(packed)
    assert caught.value.args == (
        "compressed record: wanted at most 99 bytes, found more, or its end is missing",
    )
    with pytest.raises(errors.ConfigurationError, match="its end is missing"):
        wire._unpack_record(packed[:-4])


def test_records_come_back_as_updates_and_documents():
    start = clusters.snapshot(nodes=1, extra=[clusters.network()])
    node, network = start.nodes[N1], start.networks[clusters.NETWORK]
    changes = [
        Update("nodes", N1, node),
        Update("nodes", N2, None),
        Document("jobs", "1", b"x"),
        Document("jobs", "2", None),
        Update("networks", network.uuid, network),
        Update("networks", "gone", None),
    ]
    assert wire.to_changes(wire.rows(changes)) == changes
    stored = [(N1, objects.encode(node))]
    assert wire.to_updates("nodes", stored) == changes[:1]
    with pytest.raises(errors.ConfigurationError, match=r"^nodes n2: "):
        wire.to_updates("nodes", [*stored, ("n2", b"{}")])


def test_a_pool_that_changed_in_part_needs_the_record_before():
    bits = "0" * (1 << 14)
    network = Network(
        name="lan",
        network="10.0.0.0/18",
        uuid="net",
        serial_no=1,
        reservations=bits,
        ext_reservations=bits,
    )
    first = clusters.changed(clusters.snapshot(nodes=1), network)
    before = wire.Stored(first, features.KNOWN)
    changed = network.replace(reservations="1" + bits[1:], serial_no=2)
    rows = wire.rows([Update("networks", "net", changed)], before=before)
    assert sum(len(data or b"") for _table, _key, data in rows) < 4096
    assert wire.to_changes(rows, first) == [Update("networks", "net", changed)]
    partial = [row for row in rows if row[1] != "net"]
    with pytest.raises(errors.StorageError) as caught:
        wire.to_changes(partial)
    text = "networks net: changed in part, and not known before that"
    assert caught.value.args == (text,)


# Batches and copies
def test_batches_are_base64_and_name_archives_alone():
    group = Group(
        1, 2, 3, b"p" * 16, b"d" * 16, wire.encode_rows([("jobs", "1", b"x")])
    )
    page = ArchivePage("archive", "5", "9", is_whole=True)
    text = wire.encode_batch([group], [("archive", "6", b"y")], page)
    assert text == base64.b64encode(base64.b64decode(text)).decode()
    groups, extra, same = wire.decode_batch(text)
    assert (extra, same) == ([("archive", "6", b"y")], page)
    assert groups[0][:6] == group[:6]
    assert list(wire.rows_of(groups[0])) == [("jobs", "1", b"x")]
    assert wire.decode_batch(wire.encode_batch([])) == ([], [], None)
    wrong = wire.encode_batch([], (), page._replace(table="nodes"))
    with pytest.raises(errors.StorageError) as caught:
        wire.decode_batch(wrong)
    assert caught.value.args == ("change-set: no archive 'nodes'",)
    for text in ("no base64!", "AAAA", ""):
        with pytest.raises(errors.StorageError, match=r"^change-set: "):
            wire.decode_batch(text)


def test_rows_of_a_group_that_has_them_are_not_decoded_again():
    rows = [("jobs", "1", b"x")]
    assert wire.rows_of(Group(1, 0, 1, b"", b"", b"no payload", rows)) is rows


def copy_of(**changes):
    fields = {"revision": 5, "term": 3, "digest": b"d" * 16, "rows": []}
    return wire.Copy(**{**fields, **changes})


def test_copies_are_compressed_bounded_and_name_their_cluster(monkeypatch):
    record = objects.encode(clusters.cluster())
    copy = copy_of(rows=[("jobs", "1", b"x"), ("cluster", "", record)], written=2)
    packed = wire.pack_copy(copy)
    text = wire.encode_copy(packed)
    assert wire.decode_copy(text) == copy
    assert copy.cluster() == clusters.cluster().uuid
    assert copy.written_term() == 2
    assert (copy_of().cluster(), copy_of().written_term()) == ("", 3)
    assert copy_of(written=0).written_term() == 0
    monkeypatch.setattr(wire, "_MAX_COPY", len(packed))
    assert wire.decode_copy(text) == copy
    monkeypatch.setattr(wire, "_MAX_COPY", len(packed) - 1)
    with pytest.raises(errors.StorageError) as caught:
        wire.decode_copy(text)
    wanted = f"copy of the store: incomplete, or larger than {len(packed) - 1} bytes"
    assert caught.value.args == (wanted,)
    for wrong in ("no base64!", base64.b64encode(b"x"), ""):
        with pytest.raises(errors.StorageError, match=r"^copy of the store: "):
            wire.decode_copy(wrong)


@pytest.mark.parametrize("record", [None, b"", b"{}", b"\xff", b"[1]", b'{"uuid": 5}'])
def test_a_damaged_record_of_the_cluster_names_none(record):
    assert wire.cluster_of(record) == ""


# Candidates
def test_candidates_are_those_that_are_online():
    nodes = {
        "a": {"master_candidate": True},
        "b": {"master_candidate": True, "offline": True},
        "c": {"master_candidate": False},
        "d": {},
    }
    records = [
        msgspec.json.encode({"uuid": uuid, **row}) for uuid, row in nodes.items()
    ]
    assert voters.candidates_in(records) == {"a"}
    assert voters.candidates_in([records[0].decode()]) == {"a"}
    for wrong in (b"{}", b"\xff", b"["):
        with pytest.raises(errors.ConfigurationError, match=r"^node: "):
            voters.candidates_in([wrong])
    start = clusters.snapshot(nodes=3)
    start = clusters.changed(
        start,
        start.nodes[N1].replace(offline=True),
        start.nodes[N2].replace(master_candidate=False),
    )
    assert voters.candidates_of(start) == {clusters.node_uuid(3)}


def test_the_set_of_candidates_is_a_document():
    known = Voters(frozenset({"a", "b"}), frozenset({"a"}))
    document = voters.encode(known)
    assert (document.table, document.key) == ("meta", "voters")
    assert voters.decode(document.data) == known
    for wrong in (b"{", b'{"now": 5}'):
        with pytest.raises(errors.ConfigurationError, match=r"^candidate set: "):
            voters.decode(wrong)


def test_features_have_one_form():
    assert features.encode({"b", "a"}) == Document("meta", "features", b'["a","b"]')
    known = ("archived-logs", "compressed-networks", "pool-rows")
    assert features.to_status() == ",".join(known)
    assert features.from_status({"features": "a,b"}) == {"a", "b"}
    assert features.decode(None) == frozenset()
    features.require(known, "x")
    with pytest.raises(errors.ConfigurationError) as caught:
        features.require(["z", "pool-rows", "y"], "store.db")
    assert caught.value.args == (
        (
            "store.db: uses y, z, which this release does not know: install the release"
            " that the last master had"
        ),
    )


# Layout
def test_a_new_file_has_the_layout_of_this_release():
    db = sqlite3.connect(":memory:")
    schema.create(db)
    schema.check(db, "x")
    assert schema.version_of(db) == schema.VERSION
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert db.execute("PRAGMA application_id").fetchone() == (0x676E7469,)
    columns = [row[1] for row in db.execute("PRAGMA table_info(state)")]
    assert columns == [
        *("id", "revision", "term", "digest", "owner", "written", "master"),
        *("archive", "schema", "replaced"),
    ]
    (row,) = db.execute("SELECT * FROM state").fetchall()
    assert row == (0, 0, 0, NO_HISTORY, "", 0, "", "", schema.VERSION, "[]")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(
            "INSERT INTO state (id, revision, term, digest) VALUES (1, 0, 0, '')"
        )
    for table in ("nodes", "jobs", "archive", "meta"):
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(f"INSERT INTO {table} (key) VALUES ('k')")
    assert schema.upgrade(db) == []
    db.close()


def test_steps_that_break_older_software_need_a_way_back():
    db = sqlite3.connect(":memory:")
    schema.create(db)
    one, two, three = (schema.VERSION + more for more in (1, 2, 3))
    done = []
    steps = (
        schema.Step(one, "one", lambda _db: done.append(1)),
        schema.Step(two, "two", lambda _db: done.append(2), breaks=True),
        schema.Step(
            three,
            "three",
            lambda _db: done.append(3),
            True,
            lambda _db: done.append(-3),
        ),
    )
    assert [step.version for step in schema.upgrade(db, steps)] == [one, two, three]
    assert done == [1, 2, 3]
    assert schema.version_of(db) == three
    assert db.execute("PRAGMA user_version").fetchone() == (three,)
    assert [step.version for step in schema.irreversible(one, steps)] == [two]
    assert schema.irreversible(two, steps) == []
    with pytest.raises(errors.ConfigurationError) as caught:
        schema.downgrade(db, one, steps)
    assert caught.value.args == (f"step {two} of the store (two) cannot be gone back",)
    assert done == [1, 2, 3]
    assert [step.version for step in schema.downgrade(db, two, steps)] == [three]
    assert done[-1] == -3
    assert schema.version_of(db) == two
    assert db.execute("PRAGMA user_version").fetchone() == (two,)
    assert schema.downgrade(db, two, steps) == []
    db.execute(f"PRAGMA user_version = {one}")
    with pytest.raises(errors.ConfigurationError) as caught:
        schema.check(db, "store.db")
    assert caught.value.args == (
        (
            f"store.db: needs software that knows version {one} of the store, this release"
            f" knows the versions 1 to {schema.VERSION}: install the release that wrote it"
        ),
    )
    db.execute("PRAGMA user_version = 0")
    with pytest.raises(errors.ConfigurationError, match="knows version 0 of the store"):
        schema.check(db, "store.db")
    db.close()


# In memory
def test_pages_of_the_archive_begin_after_a_key_and_have_a_size():
    backend = MemoryBackend()
    db = open_memory(backend)
    db.commit([Document("archive", key, b"xx") for key in ("1", "2", "3")])
    rows = [("archive", key, b"xx") for key in ("1", "2", "3")]
    for cursor, size, first, last, upto in (
        ("archive/", 1, 0, 1, "1"),
        ("archive/", 2, 0, 1, "1"),
        ("archive/", 3, 0, 2, "2"),
        ("archive/1", 100, 1, 3, "3"),
        ("archive/3", 100, 3, 3, None),
    ):
        revision, page, actual = backend.page(cursor, size)
        assert revision == db.snapshot().revision
        assert page == ArchivePage("archive", cursor.partition("/")[2], upto, True)
        assert actual == rows[first:last]
    db.close()


# Followers
@pytest.fixture
def followed(tmp_path):
    from ganeti import store
    from ganeti.base.clock import SystemClock

    path = str(tmp_path / "store.db")
    db = store.open_master(path, replicate=None, clock=SystemClock())
    db.commit(cluster.big(2, 1))
    follower = Follower(path)
    yield db, follower
    follower.close()
    db.close()


def test_a_follower_reads_and_scans_documents_as_they_are_now(followed, monkeypatch):
    db, follower = followed
    monkeypatch.setattr("ganeti.store.tables.SCAN_ROWS", 2)
    keys = [str(number) for number in range(1, 6)]
    db.commit([Document("jobs", key, key.encode()) for key in keys])
    assert [follower.read("jobs", key) for key in ("1", "9")] == [b"1", None]
    assert list(follower.scan("jobs")) == [(key, key.encode()) for key in keys]
    assert list(follower.scan("archive")) == []
    follower.close()
    for use in (
        lambda: follower.read("jobs", "1"),
        lambda: list(follower.scan("jobs")),
        follower.is_below_replaced,
    ):
        with pytest.raises(errors.ConfigurationError, match=r"store\.db: closed"):
            use()


def test_a_scan_ends_where_the_file_was_replaced(followed, monkeypatch, tmp_path):
    db, follower = followed
    monkeypatch.setattr("ganeti.store.tables.SCAN_ROWS", 1)
    db.commit([Document("jobs", key, b"x") for key in "12"])
    scan = follower.scan("jobs")
    assert next(scan) == ("1", b"x")
    (tmp_path / "store.db").rename(tmp_path / "old.db")
    with pytest.raises(errors.ConfigurationError, match="closed or replaced"):
        next(scan)


def test_a_follower_notices_a_history_that_went_further(followed):
    db, follower = followed
    assert not follower.is_below_replaced()
    raw = sqlite3.connect(follower.path)
    own = db.snapshot().revision
    for revision, expected in ((own, False), (own + 1, True)):
        raw.execute("UPDATE state SET replaced = ?", (f"[{revision},0,0]",))
        raw.commit()
        assert follower.is_below_replaced() is expected
    raw.close()


def test_a_follower_leaves_nothing_beside_the_file(tmp_path):
    from ganeti import store
    from ganeti.base.clock import SystemClock

    path = str(tmp_path / "store.db")
    db = store.open_master(path, replicate=None, clock=SystemClock())
    db.commit(cluster.big(2, 1))
    db.close()
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]
    before = (tmp_path / "store.db").stat()
    follower = Follower(path)
    assert len(follower.snapshot().nodes) == 2
    assert follower.poll().is_empty
    assert follower.read("jobs", "1") is None
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]
    assert (tmp_path / "store.db").stat().st_mtime_ns == before.st_mtime_ns
    follower.close()


@pytest.mark.parametrize(
    ("refuses", "can_restart", "expected"),
    [
        (True, True, True),
        (True, False, False),
        (False, True, False),
        (False, False, False),
    ],
)
def test_a_restart_helps_a_candidate_that_refuses_and_lets_it_happen(
    refuses, can_restart, expected
):
    peer = peer_module.Peer("n1", "node1")
    peer.is_refusing, peer.can_restart = refuses, can_restart
    state = peer_module.state_of(peer)
    assert state.wants_restart is expected
    assert (state.is_current, state.revision) == (False, -1)
    assert state.trouble == "not asked yet"


def test_a_copy_is_current_when_its_archive_is_whole():
    peer = peer_module.Peer("n1", "node1")
    peer.state, peer.acked = peer_module.State.CURRENT, 7
    assert peer_module.state_of(peer)[:3] == (True, 7, "")
    peer.archive = "archive/"
    text = "archived jobs are still being copied"
    assert peer_module.state_of(peer)[:3] == (False, 7, text)
