"""Beginning as master with the store in etcd, with a real server."""

import os
import threading

import pytest

from fakes import clusters
from fakes.etcd_servers import EtcdServers
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.stores import etcd_place
from ganeti.daemons.masterd import etcd_master, startup
from ganeti.model.objects import TABLES, Update
from ganeti.store import open_master
from ganeti.store.etcd import Claim, Gateway, open_etcd, parse
from ganeti.store.etcd.reader import Reader

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    servers = EtcdServers(tmp_path_factory.mktemp("etcd"))
    try:
        yield servers.start()
    finally:
        servers.close()


class Site:
    """A cluster of three whose store is in etcd, seen from its master."""

    def __init__(self, folder, servers):
        self.servers = servers
        snapshot = clusters.snapshot(nodes=3)
        self.own = snapshot.nodes[snapshot.cluster.master_node]
        self.other = snapshot.nodes[clusters.node_uuid(2)]
        self.paths = Paths(root=str(folder / self.own.name), hostname=self.own.name)
        os.makedirs(self.paths.data_dir)
        db = open_master(self.paths.store_db, replicate=None, clock=CLOCK, node="x")
        db.commit(
            [
                Update(table, key, record)
                for table in TABLES
                for key, record in snapshot.table(table).items()
            ]
        )
        db.close()
        etcd_place.find(str(servers)).fill(self.paths, self.own.uuid)
        self.deposed = threading.Event()

    def open(self, paths=None, servers=None):
        return etcd_master.open_store(
            paths or self.paths, CLOCK, servers or self.servers, self.deposed.set
        )

    def leading(self):
        gateway = Gateway(self.servers)
        try:
            return Reader(gateway).look().leading
        finally:
            gateway.close()


@pytest.fixture
def site(tmp_path, etcd):
    return Site(tmp_path, etcd.servers())


def test_a_master_leads_and_records_its_term(site):
    opened, runner = site.open()
    runner.close()
    assert opened.term.owner == site.own.uuid
    assert site.leading() == opened.term
    assert opened.read("meta", "term") == str(opened.term).encode()
    opened.close()
    # It may be started again before another candidate takes over.
    assert site.leading().owner == site.own.uuid
    again, runner = site.open()
    runner.close()
    assert again.term > opened.term
    again.close()
    assert not site.deposed.is_set()


def test_the_master_that_has_the_lease_is_named(site):
    living = open_etcd(site.servers, clock=CLOCK, node=site.other.uuid)
    with pytest.raises(startup.NotMaster) as caught:
        site.open()
    assert caught.value.why is startup.Refusal.NOT_MASTER
    assert site.other.name in str(caught.value)
    assert site.other.uuid not in str(caught.value)
    assert site.leading().owner == site.other.uuid
    living.close()


def test_a_node_that_the_configuration_does_not_name_is_not_master(site):
    db = open_etcd(site.servers, clock=CLOCK, node=site.other.uuid)
    cluster = db.snapshot().cluster.replace(master_node=site.other.uuid)
    db.commit([Update("cluster", "", cluster)])
    before = db.snapshot().revision
    db.close()
    with pytest.raises(startup.NotMaster, match=site.other.name) as caught:
        site.open()
    assert caught.value.why is startup.Refusal.FAILED
    claim = Claim(is_forced=True)
    db = open_etcd(site.servers, clock=CLOCK, node=site.other.uuid, claim=claim)
    assert db.snapshot().revision == before
    db.close()


def test_a_stranger_does_not_even_ask_the_servers(site):
    strange = Paths(root=site.paths.root, hostname="node9.example.com")
    nowhere = parse("etcd://127.0.0.1:1")
    with pytest.raises(startup.NotMaster, match=r"node9.* is not a node of the") as no:
        site.open(strange, nowhere)
    assert no.value.why is startup.Refusal.FAILED


def test_a_master_learns_that_another_one_has_begun(site):
    opened, runner = site.open()
    claim = Claim(is_forced=True)
    newer = open_etcd(site.servers, clock=CLOCK, node=site.other.uuid, claim=claim)
    assert site.deposed.wait(60)
    for each in (newer, opened, runner):
        each.close()
