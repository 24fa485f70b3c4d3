"""Stores in etcd: moves from and to a file, cut off at each step, health, removal."""

import dataclasses
import random

import pytest

from fakes import cluster
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.model.objects import TABLES
from ganeti.store import DOCUMENT_TABLES, Document, open_master
from ganeti.store.database import Database
from ganeti.store.etcd import (
    EtcdBackend,
    Gateway,
    Mirror,
    check,
    members,
    messages,
    open_etcd,
    to_etcd,
    to_file,
)
from ganeti.store.etcd.mirror import _Entry
from ganeti.store.etcd.reader import Reader
from ganeti.store.etcd.servers import remove_store

CLOCK = SystemClock()


class CutError(errors.StorageError):
    pass


@pytest.fixture
def servers(etcd):
    return etcd.servers()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def filled(path):
    """A file with a cluster and more rows than one transaction takes."""
    db = open_file(path)
    db.commit(cluster.updates(cluster.example_data()))
    db.commit([Document("jobs", str(i), b"x" * 2000) for i in range(300)])
    db.commit([Document("archive", str(i), b"y" * 200_000) for i in range(9)])
    db.close()
    return contents(path)


def open_file(path, node="node1"):
    return open_master(path, replicate=None, clock=CLOCK, node=node)


def begin(servers, node="node1"):
    return open_etcd(servers, clock=CLOCK, node=node)


def rows_of(store):
    return {
        (table, key): data
        for table in (*TABLES, *DOCUMENT_TABLES)
        for key, data in store.scan(table)
    }


def contents(path):
    backend = open_file(path)._backend
    try:
        return {
            (table, key): data
            for table in (*TABLES, *DOCUMENT_TABLES)
            for key, data in backend.scan(table, "")
        }
    finally:
        backend.close()


def end_of(path):
    db = Database(path, create=False)
    position = db.position()
    db.close()
    return position


def test_a_file_goes_to_etcd_and_back_with_everything(path, servers, filled, tmp_path):
    before = end_of(path)
    moved = to_etcd(path, servers, "node1")
    assert (moved.revision, moved.digest) == (before.revision, before.digest)
    assert moved.term.number == before.term.number + 1
    db = begin(servers)
    assert rows_of(db) == filled
    assert db.term.number == moved.term.number + 1
    db.commit([Document("jobs", "new", b"{}")])
    end = db._backend.end()
    db.close()
    back = str(tmp_path / "back.db")
    for target in (back, path):
        position = to_file(servers, target, "node1", CLOCK)
        assert (position.revision, position.digest) == end
        assert position.term.number == db.term.number + 1
        assert contents(target) == {**filled, ("jobs", "new"): b"{}"}
    # And there again.
    to_etcd(path, servers, "node1")
    db = begin(servers)
    assert rows_of(db) == {**filled, ("jobs", "new"): b"{}"}
    db.close()


def test_a_move_to_etcd_that_is_cut_off_anywhere_can_be_repeated(
    path, servers, filled, monkeypatch
):
    transact, step = Gateway.transact, 0
    while True:
        step += 1
        left = [step]

        def cut(self, body, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise CutError("cut off")
            return transact(self, body)

        monkeypatch.setattr(Gateway, "transact", cut)
        try:
            to_etcd(path, servers, "node1")
        except CutError:
            monkeypatch.setattr(Gateway, "transact", transact)
            if step > 1:
                with pytest.raises(errors.ConfigurationError, match="is not complete"):
                    begin(servers)
            continue
        break
    monkeypatch.setattr(Gateway, "transact", transact)
    assert step > 5
    db = begin(servers)
    assert rows_of(db) == filled
    db.close()


def test_a_move_whose_last_answer_was_lost_is_complete(path, servers, filled):
    to_etcd(path, servers, "node1")
    again = to_etcd(path, servers, "node1")
    assert again == end_of(path)
    db = begin(servers)
    assert rows_of(db) == filled
    db.close()


def test_a_move_to_a_file_that_is_cut_off_can_be_repeated(
    path, servers, filled, tmp_path, monkeypatch
):
    to_etcd(path, servers, "node1")
    target = str(tmp_path / "target.db")
    for where, name in (
        (EtcdBackend, "open"),
        (Mirror, "catch_up"),
        (Database, "replace"),
        (Database, "append"),
        (EtcdBackend, "move_out"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, _cut)
            with pytest.raises(CutError):
                to_file(servers, target, "node1", CLOCK)
        db = begin(servers)  # until the end, etcd has the store
        db.close()
    to_file(servers, target, "node1", CLOCK)
    assert contents(target) == filled


def _cut(*_args, **_options):
    raise CutError("cut off")


def test_after_a_move_to_a_file_no_master_begins_in_etcd(path, servers, filled):
    to_etcd(path, servers, "node1")
    to_file(servers, path, "node1", CLOCK)
    with pytest.raises(errors.ConfigurationError, match="was moved to a file"):
        begin(servers)
    db = open_file(path)
    db.commit([Document("jobs", "later", b"{}")])
    db.close()
    assert ("jobs", "later") in contents(path)


def test_a_master_of_the_file_cannot_write_after_the_move_began(path, servers, filled):
    db = open_file(path)
    to_etcd(path, servers, "node1")
    with pytest.raises(errors.TermError):
        db.commit([Document("jobs", "late", b"{}")])
    db.close()


def test_a_running_master_in_etcd_is_not_moved(path, servers, filled, tmp_path):
    to_etcd(path, servers, "node1")
    db = begin(servers, "node2")
    with pytest.raises(errors.TermError, match="node2 is master"):
        to_file(servers, str(tmp_path / "other.db"), "node1", CLOCK)
    with pytest.raises(errors.ConfigurationError, match="wanted no store, found"):
        db.commit([Document("jobs", "more", b"{}")])
        to_etcd(path, servers, "node1")
    assert db.commit([Document("jobs", "last", b"{}")])
    db.close()


def test_another_cluster_is_not_replaced(path, servers, filled, tmp_path):
    example = cluster.example_data()
    example["cluster"]["uuid"] = "f" * 8 + "-0000-4000-8000-" + "0" * 12
    other = str(tmp_path / "other.db")
    db = open_file(other)
    db.commit(cluster.updates(example))
    db.close()
    to_etcd(path, servers, "node1")
    with pytest.raises(errors.ConfigurationError, match="wanted no store"):
        to_etcd(other, servers, "node1")
    to_file(servers, path, "node1", CLOCK)
    with pytest.raises(errors.ConfigurationError, match="found a move of cluster"):
        to_etcd(other, servers, "node1")
    with pytest.raises(errors.ConfigurationError, match="wanted cluster"):
        to_file(servers, other, "node1", CLOCK)


def test_a_file_without_a_cluster_is_refused(path, servers):
    open_file(path).close()
    with pytest.raises(errors.ConfigurationError, match="no cluster is in it"):
        to_etcd(path, servers, "node1")
    with pytest.raises(errors.ConfigurationError, match="no such database"):
        to_etcd(f"{path}.missing", servers, "node1")


def test_a_row_that_is_too_large_is_named(path, servers):
    db = open_file(path)
    db.commit(cluster.updates(cluster.example_data()))
    db.commit([Document("jobs", "77", random.Random(1).randbytes(1_280_000))])
    db.close()
    before = end_of(path)
    with pytest.raises(errors.StorageError, match="jobs 77 has 128"):
        to_etcd(path, servers, "node1")
    assert end_of(path) == before
    assert Reader(Gateway(servers)).moving() is None


def test_nothing_is_moved_out_of_nothing(path, servers):
    with pytest.raises(errors.ConfigurationError, match="there is no store"):
        to_file(servers, path, "node1", CLOCK)


def test_two_moves_at_the_same_time_do_not_mix(path, servers, filled, monkeypatch):
    finish = _Entry._finish

    def second(self, position):
        monkeypatch.setattr(_Entry, "_finish", finish)
        to_etcd(path, servers, "node2")
        finish(self, position)

    monkeypatch.setattr(_Entry, "_finish", second)
    with pytest.raises(errors.TermError):
        to_etcd(path, servers, "node1")
    db = begin(servers)
    assert rows_of(db) == filled
    db.close()


def test_a_damaged_move_is_one_error(path, servers, filled):
    where = f"{servers.prefix}/moving".encode()
    gateway = Gateway(servers)
    gateway.transact(messages.transaction([], [messages.put(where, b"{}")]))
    for act in (
        lambda: begin(servers),
        lambda: to_etcd(path, servers, "node1"),
        lambda: to_file(servers, path, "node1", CLOCK),
    ):
        with pytest.raises(errors.ConfigurationError, match="move in etcd: damaged"):
            act()


# The health of servers of a store, and its removal, with a real server.

DEAD = "127.0.0.1:1"


def test_a_server_that_answers_is_healthy_and_others_have_a_reason(etcd):
    servers = etcd.servers()
    two = dataclasses.replace(servers, hosts=(*servers.hosts, DEAD))
    well, dead = members(two)
    assert (well.host, well.problem) == (servers.hosts[0], "")
    assert well.version.startswith("3.")
    assert well.size > 0
    assert dead.host == DEAD
    assert "connect" in dead.problem
    check(two)
    with pytest.raises(errors.StorageError, match=f"{DEAD}: .*connect"):
        check(dataclasses.replace(servers, hosts=(DEAD,)))


def test_a_removed_store_is_gone_and_its_neighbour_stays(etcd):
    servers, other = etcd.servers("prefix"), etcd.servers("prefix2")
    for each in (servers, other):
        db = open_etcd(each, clock=SystemClock(), node="node1")
        db.commit([Document("jobs", "1", b"{}")])
        db.close()
    remove_store(servers)
    remove_store(servers)  # as after an interruption
    gateways = [Gateway(each) for each in (servers, other)]
    gone, stays = (Reader(gateway).look().mark.revision for gateway in gateways)
    assert (gone, stays) == (0, 1)
    for gateway in gateways:
        gateway.close()
