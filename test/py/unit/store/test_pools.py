"""Address pools of large networks in a real store: what is logged, sent and read."""

import pytest

from fakes import cluster
from fakes.patience import until
from ganeti.base import errors
from ganeti.model import objects
from ganeti.model.objects import Network, Update
from ganeti.store import Follower, features, pools, published, wire
from ganeti.store.copies import branches
from ganeti.store.database import Database

SIZE = 1 << 16
LARGE = Network(
    name="lan",
    network="10.0.0.0/16",
    uuid="net",
    serial_no=1,
    reservations="01" * (SIZE // 2),
    ext_reservations="1" + "0" * (SIZE - 2) + "1",
)


def marked(network, index):
    cells = list(network.reservations)
    cells[index] = "1" if cells[index] == "0" else "0"
    return network.replace(reservations="".join(cells))


def put(db, network):
    return db.commit([Update("networks", network.uuid, network)])


def is_current(db):
    newest = db.snapshot().revision
    return all(c.is_current and c.revision >= newest for c in db.copies().values())


def networks_in(path):
    db = Database(str(path), create=False)
    try:
        return dict(db.load()[0].networks)
    finally:
        db.close()


def log_of(path):
    db = Database(str(path), create=False)
    try:
        return db.log.groups()
    finally:
        db.close()


@pytest.fixture
def db(opener):
    """A store with one large network, that all candidates have."""
    db = opener()
    db.commit(cluster.big(4, 2))
    until("the copies", lambda: is_current(db))
    put(db, LARGE)
    until("the copies", lambda: is_current(db))
    return db


def test_changes_do_not_fill_the_log(db, tmp_path):
    network, before = LARGE, len(log_of(tmp_path / "store.db"))
    for index in range(0, 40_000, 100):
        network = marked(network, index)
        put(db, network)
    groups = log_of(tmp_path / "store.db")[before:]
    assert len(groups) == 400
    assert sum(len(group.payload) for group in groups) < 400 * 150
    assert dict(db.snapshot().networks) == {"net": network}
    until("the copies", lambda: is_current(db))
    for number in (1, 2):
        assert networks_in(tmp_path / f"copy{number}.db") == {"net": network}


def test_a_candidate_that_missed_changes_gets_them(db, simulation, tmp_path):
    network = LARGE
    simulation.down.add(simulation.node(1))
    simulation.calls.clear()
    for index in range(20):
        network = marked(network, index * 700)
        put(db, network)
    simulation.down.clear()
    until("the copies", lambda: is_current(db))
    assert networks_in(tmp_path / "copy1.db") == {"net": network}
    assert "store_install" not in {procedure for _node, procedure in simulation.calls}


def test_a_whole_copy_and_a_restart_have_the_pool(db, opener, simulation, tmp_path):
    network = marked(LARGE, 5)
    put(db, network)
    db.close()
    simulation[2].purge()
    again = opener()
    assert dict(again.snapshot().networks) == {"net": network}
    network = marked(network, 6)
    put(again, network)
    until("the copies", lambda: is_current(again))
    assert networks_in(tmp_path / "copy2.db") == {"net": network}
    again.commit([Update("networks", "net", None)])
    file = Database(str(tmp_path / "store.db"), create=False)
    assert file.tables.scan_some("networks", None, "") == []
    file.close()


def test_networks_of_an_earlier_release_are_converted_together(opener, tmp_path):
    db = opener()
    db.commit(cluster.big(4, 2))
    until("the copies", lambda: is_current(db))
    put(db, LARGE)
    other = LARGE.replace(uuid="other", name="other")
    small = LARGE.replace(
        uuid="s", name="s", reservations="0" * 256, ext_reservations=None
    )
    db.close()
    file = Database(str(tmp_path / "store.db"), create=False)
    rows = [
        ("networks", item.uuid, objects.encode(item)) for item in (LARGE, other, small)
    ]
    file.file.sql.execute("DELETE FROM networks")
    with file.file.transaction():
        file.tables.put([*rows, ("meta", features.KEY, b"[]")])
    file.close()
    db = opener()
    until("the copies", lambda: is_current(db))
    assert db.snapshot().networks["other"] == other
    changed = marked(LARGE, 7)
    put(db, changed)
    expected = {"net": changed, "other": other, "s": small}
    assert dict(db.snapshot().networks) == expected
    db.close()
    assert networks_in(tmp_path / "store.db") == expected
    file = Database(str(tmp_path / "store.db"), create=False)
    keys = {key for key, _data in file.tables.scan_some("networks", None, "other")}
    file.close()
    assert "other/u0000" in keys
    assert dict(opener().snapshot().networks) == expected


def test_a_reader_in_another_process_gets_whole_networks(db, tmp_path):
    follower = Follower(str(tmp_path / "store.db"))
    network = LARGE
    for index in (1, 600, 65535):
        network = marked(network, index)
        put(db, network)
        (change_set,) = follower.poll().change_sets
        assert change_set.changes == [Update("networks", "net", network)]
        assert follower.snapshot().networks["net"] == network
    follower.close()


def test_followers_get_whole_networks(db):
    news = db.follow(db.snapshot().revision)
    network = marked(LARGE, 9)
    put(db, network)
    assert next(news).changes == [Update("networks", "net", network)]


def test_changes_kept_for_followers_count_with_their_pools(db, monkeypatch):
    """Each keeps a text of 64 kB in memory, though its payload has 100 bytes."""
    monkeypatch.setattr(published, "RECENT_BYTES", 10 * SIZE)
    network = LARGE
    for index in range(20):
        network = marked(network, index)
        put(db, network)
    assert len(db._published._recent) <= 10


def test_a_follower_that_missed_parts_of_a_network_starts_again(db, monkeypatch):
    monkeypatch.setattr(published, "RECENT_BYTES", 1)
    before = db.snapshot().revision
    put(db, marked(LARGE, 1))
    put(db, marked(LARGE, 2))
    with pytest.raises(errors.StorageError, match="networks net: changed in part"):
        next(db.follow(before))


def test_lost_changes_name_the_network_once(db, tmp_path):
    changed = LARGE
    for index in range(0, SIZE, 5000):
        changed = marked(changed, index)
    put(db, changed)
    group = log_of(tmp_path / "store.db")[-1]
    assert len(wire.rows_of(group)) > 5
    assert branches._describe(group) == ["set networks net"]
    db.commit([Update("networks", "net", None)])
    group = log_of(tmp_path / "store.db")[-1]
    assert branches._describe(group) == ["remove networks net"]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([("net/u0000", b"b1")], "address pool without its network"),
        ([("net", b"[1,2")], "networks net: Network: "),
        ([("net", b'[-1,null,{"name":"x"}]')], "networks net: "),
        ([("net", None), ("net/u0000", b"?")], "networks net/u0000: Network: "),
        ([("net", None), ("net/u0000", b"b1")], "wanted 512 addresses, found 1 bytes"),
        ([("net", None), ("net/u0000", b"tx")], "wanted 512 addresses"),
        ([("net", None), ("net/u0000", b"t\xff")], "address pool: "),
    ],
)
def test_damaged_rows_are_named(rows, text):
    head = next(pools.rows("net", None, LARGE, was_in_rows=False))[2]
    stored = [(key, head if data is None else data) for key, data in rows]
    with pytest.raises(errors.ConfigurationError, match=text):
        wire.to_updates("networks", stored)


def test_a_network_whose_uuid_looks_like_a_row_stays_whole():
    odd = LARGE.replace(uuid="net/u0001")
    rows = wire.rows([Update("networks", odd.uuid, odd)], {features.POOL_ROWS})
    assert len(rows) == 1
    stored = [(key, data) for _table, key, data in rows]
    assert wire.to_updates("networks", stored) == [Update("networks", odd.uuid, odd)]


@pytest.mark.parametrize(
    ("table", "data", "expected"),
    [
        ("networks", "head", True),
        ("networks", b'{"name":"x"}', False),
        ("networks", None, False),
        ("nodes", "head", False),
    ],
)
def test_networks_whose_pool_is_in_rows_are_known_by_their_rows(table, data, expected):
    head = next(pools.rows("net", None, LARGE, was_in_rows=False))[2]
    data = head if data == "head" else data
    assert pools.is_in_rows((table, "net", data)) is expected
    is_network = table == "networks"
    assert pools.is_in_rows((table, "net/u0000", b"b1")) is is_network
    assert pools.is_in_rows((table, "net/u0000", None)) is is_network
