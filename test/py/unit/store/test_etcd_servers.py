"""The health of servers of a store, and its removal, with a real server."""

import dataclasses

import pytest

from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.store import Document
from ganeti.store.etcd import Gateway, check, members, open_etcd
from ganeti.store.etcd.reader import Reader
from ganeti.store.etcd.removal import remove_store

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
