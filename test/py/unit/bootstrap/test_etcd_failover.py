"""Taking the leadership of a store in etcd for a node, with a real server."""

import os

import pytest

from fakes import clusters
from fakes.etcd_servers import EtcdServers
from fakes.processes import FakeRunner
from fakes.rpc import FakeRunner as FakeNodes
from ganeti import errors, ssconf
from ganeti.bootstrap import etcd_failover, etcd_place, store_access
from ganeti.clock import SystemClock
from ganeti.objects import TABLES, Update
from ganeti.pathutils import Paths
from ganeti.store import choice, open_master
from ganeti.store.etcd import Claim, Gateway, Servers, open_etcd
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
    """A cluster of three whose store is in etcd, seen from its second node."""

    def __init__(self, folder, servers: Servers):
        self.servers = servers
        snapshot = clusters.snapshot(nodes=3)
        self.master = snapshot.nodes[snapshot.cluster.master_node]
        self.own = next(
            node for node in snapshot.nodes.values() if node is not self.master
        )
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
        place = etcd_place.find(str(servers))
        place.fill(self.paths, self.master.uuid)

    def lead(self, node=None, **claim):
        return etcd_failover.lead(
            self.paths, CLOCK, self.servers, node or self.own, Claim(**claim)
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


def test_who_leads_is_recorded_as_the_master(site):
    assert choice.read(site.paths) == site.servers
    with site.lead(needs_vacancy=True) as (opened, old):
        assert old == site.master
        assert opened.snapshot().cluster.master_node == site.own.uuid
        assert site.leading().owner == site.own.uuid
        assert ssconf.SimpleStore(site.paths).master_node() == site.own.name
    assert site.leading() is None
    with site.lead() as (opened, old):
        assert old is None


def test_a_node_that_is_no_candidate_does_not_lead(site):
    db = open_etcd(site.servers, clock=CLOCK, node=site.master.uuid)
    db.commit(
        [Update("nodes", site.own.uuid, site.own.replace(master_candidate=False))]
    )
    db.close()
    with (
        pytest.raises(errors.OpPrereqError, match="not a master candidate"),
        site.lead(),
    ):
        pytest.fail("it leads")
    assert site.leading() is None
    db = open_etcd(site.servers, clock=CLOCK, node=site.master.uuid)
    assert db.snapshot().cluster.master_node == site.master.uuid
    db.close()


def test_a_living_master_is_replaced_on_request_alone(site):
    living = open_etcd(site.servers, clock=CLOCK, node=site.master.uuid)
    with pytest.raises(errors.TermError, match="is master"), site.lead():
        pytest.fail("it leads")
    with site.lead(is_forced=True):
        assert site.leading().owner == site.own.uuid
    living.close()


def test_a_takeover_starts_the_daemons_while_the_node_leads(site, monkeypatch):
    leading = []

    def daemon_util(*_args, **_options):
        leading.append(site.leading())
        return FakeRunner.DONE

    nodes = FakeNodes(lambda: None, {"node_deactivate_master_ip": None})
    nodes._snapshot = lambda: clusters.snapshot(nodes=3)
    monkeypatch.setattr(etcd_failover.rpc, "NetworkRunner", lambda *_args: nodes)
    runner = FakeRunner(daemon_util=daemon_util)
    etcd_failover.take_over(site.paths, runner, CLOCK, site.servers, site.own)
    assert runner.lines == ["daemon-util start-master"]
    assert [term.owner for term in leading] == [site.own.uuid]
    assert [call[:2] for call in nodes.calls] == [
        ("node_deactivate_master_ip", site.master.uuid)
    ]
    assert site.leading() is None


def test_a_command_holds_the_leadership_of_etcd_alone(site):
    with store_access.holding(site.paths, CLOCK, site.own.uuid) as held:
        assert held is not None
        assert site.leading().owner == site.own.uuid
    choice.write_file_engine(site.paths)
    with store_access.holding(site.paths, CLOCK, site.own.uuid) as held:
        assert held is None


def test_a_place_is_checked_before_anything_is_changed(site, tmp_path):
    for text, reason in (
        ("etcd://", "no HOST:PORT"),
        (f"{site.servers}?ca={tmp_path}/none", "none: No such file"),
        ("etcd://127.0.0.1:1", "cannot be used"),
        (str(site.servers), "wanted no store, found revision 1"),
    ):
        with pytest.raises(errors.OpPrereqError, match=reason):
            etcd_place.find(text)
    assert etcd_place.find(None) is None
    etcd_place.find(str(site.servers), is_new=False).remove()
    assert etcd_place.find(str(site.servers)) is not None
