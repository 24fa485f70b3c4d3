"""Taking the leadership of a store in etcd for a node, with a real server."""

import errno
import os

import pytest

from fakes import clusters, etcd_servers
from fakes.processes import FakeRunner
from fakes.rpc import FakeRunner as FakeNodes
from fakes.rpc import failure
from fakes.vnode import know_own_name
from ganeti.automation import new_master
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.tls import x509
from ganeti.bootstrap import failover, lost_master, store_access
from ganeti.master import config
from ganeti.model.objects import Update
from ganeti.operations import master_ip
from ganeti.protocols import ssconf
from ganeti.store import Document, choice, open_master
from ganeti.store.etcd import Claim, open_etcd, parse

CLOCK = SystemClock()


class Site(etcd_servers.Site):
    """A cluster of three whose store is in etcd, seen from its second node."""

    def __init__(self, folder, servers):
        super().__init__(folder, servers, own=2)
        know_own_name(self.paths)

    def lead(self, node=None, **claim):
        return new_master.lead(
            self.paths, CLOCK, self.servers, node or self.own, Claim(**claim)
        )


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


def test_a_node_that_cannot_record_itself_leaves_the_former_master(site, monkeypatch):
    def fail(path, *_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr("ganeti.protocols.ssconf.files.write_file", fail)
    with pytest.raises(errors.OpPrereqError, match="No space"), site.lead():
        pytest.fail("it leads")
    assert site.leading() is None
    monkeypatch.setattr("ganeti.protocols.ssconf.MAX_SIZE", 40)
    monkeypatch.undo()
    with site.lead() as (_opened, old):
        assert old == site.master  # The store had not named this node.


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

    nodes = other_nodes(monkeypatch, site.master.name)
    runner = FakeRunner(daemon_util=daemon_util)
    new_master.take_over(site.paths, runner, CLOCK, site.servers, site.own)
    assert runner.lines == ["daemon-util start-master"]
    assert [term.owner for term in leading] == [site.own.uuid]
    (third,) = {*clusters.snapshot(nodes=3).nodes} - {site.own.uuid, site.master.uuid}
    assert [call[:2] for call in nodes.calls] == [
        ("master_node_name", third),
        ("node_deactivate_master_ip", site.master.uuid),
    ]
    assert nodes.limits["master_node_name"] == {new_master.ASK_S}


def other_nodes(monkeypatch, answer):
    script = {"node_deactivate_master_ip": None, "master_node_name": answer}
    nodes = FakeNodes(lambda: None, script)
    nodes._snapshot = lambda: clusters.snapshot(nodes=3)
    monkeypatch.setattr(new_master.rpc, "NetworkRunner", lambda *_args: nodes)
    return nodes


def test_a_node_that_the_others_refuse_does_not_take_over(site, monkeypatch):
    other_nodes(monkeypatch, failure("bad certificate", refused=True))
    runner = FakeRunner(daemon_util=FakeRunner.DONE)
    with pytest.raises(errors.OpPrereqError, match="1 of 1 other master candidates re"):
        new_master.take_over(site.paths, runner, CLOCK, site.servers, site.own)
    assert (site.leading(), runner.lines) == (None, [])
    # One that does not answer refuses nothing.
    other_nodes(monkeypatch, failure("no answer"))
    new_master.take_over(site.paths, runner, CLOCK, site.servers, site.own)
    assert runner.lines == ["daemon-util start-master"]


def record_certificates(site, certs):
    db = open_etcd(site.servers, clock=CLOCK, node=site.master.uuid)
    with config.Config(db, CLOCK).edit("test") as edit:
        edit.update_cluster(candidate_certs=certs)
    db.close()


@pytest.mark.parametrize("suffix", ["", "-next"])
def test_a_candidate_leads_when_its_certificate_is_recorded(site, suffix):
    pair = x509.create_self_signed()
    files.write_file(site.paths.client_pem, pair.pem)
    record_certificates(site, {site.master.uuid: "AA"})
    with (
        pytest.raises(errors.OpPrereqError, match="certificate is not recorded"),
        site.lead(is_forced=True),
    ):
        pytest.fail("it leads")
    assert site.leading() is None
    record_certificates(site, {f"{site.own.uuid}{suffix}": pair.digest})
    with site.lead():
        assert site.leading().owner == site.own.uuid


def test_a_living_master_is_not_replaced_by_a_node_that_cannot_call(site):
    files.write_file(site.paths.client_pem, x509.create_self_signed().pem)
    db = open_master(site.paths.store_db, replicate=None, clock=CLOCK, node="x")
    with config.Config(db, CLOCK).edit("test") as edit:
        edit.update_cluster(candidate_certs={site.master.uuid: "AA"})
    db.close()
    living = open_etcd(site.servers, clock=CLOCK, node=site.master.uuid)
    with pytest.raises(errors.OpPrereqError), site.lead(is_forced=True):
        pytest.fail("it leads")
    assert site.leading().owner == site.master.uuid
    living.close()
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
            store_access.find_place(text)
    assert store_access.find_place(None) is None
    store_access.find_place(str(site.servers), is_new=False).remove()
    assert store_access.find_place(str(site.servers)) is not None


@pytest.fixture
def command(site, monkeypatch):
    """Return the failover command on the second node, with fake nodes and daemons."""
    acts = ("write_ssconf_files", "node_deactivate_master_ip", "node_stop_master")
    nodes = FakeNodes(None, dict.fromkeys(acts))

    def runner(source, paths, term):
        assert paths is site.paths
        assert term == site.leading()
        nodes._snapshot = source
        return nodes

    serving, addresses = [True], [False, True]
    monkeypatch.setattr(failover.rpc, "NetworkRunner", runner)
    monkeypatch.setattr(failover, "is_serving", lambda *_a, **_k: serving.pop(0))
    monkeypatch.setattr(
        failover.netutils, "tcp_ping", lambda *_a, **_k: addresses.pop(0)
    )
    ssconf.write(site.paths, {"master_node": f"{site.master.name}\n"})
    leading = []

    def daemon_util(_argv):
        leading.append(site.leading().owner)
        return FakeRunner.DONE

    process, lines = FakeRunner(daemon_util=daemon_util), []

    def run(**options):
        return failover.fail_over(
            site.paths,
            process,
            CLOCK,
            failover.FailoverOptions(**options),
            feedback=lines.append,
        )

    run.lines, run.nodes, run.leading, run.process = lines, nodes, leading, process
    return run


def test_the_command_takes_the_leadership_and_stops_the_old_master(site, command):
    db = open_etcd(site.servers, clock=CLOCK, node=site.master.uuid)
    db.commit([Document("meta", "drain", b"1")])
    db.close()
    assert command() is True
    assert command.lines == [
        f"Setting master to {site.own.name}, old master: {site.master.name}",
        "The job queue was drained; it accepts jobs again",
        "Starting the master daemons on this node",
    ]
    assert command.process.lines == ["daemon-util start-master"]
    assert command.leading == [site.own.uuid]
    for name, nodes in (
        ("write_ssconf_files", 2),
        ("node_deactivate_master_ip", 1),
        ("node_stop_master", 1),
    ):
        assert len(command.nodes.called(name)) == nodes, name
    with site.lead() as (opened, old):
        assert old is None
        assert opened.read("meta", "drain") is None
    values = command.nodes.called("write_ssconf_files")[0][1][0]
    assert values["master_node"].strip() == site.own.name


def test_servers_that_do_not_answer_leave_the_command_to_be_repeated(
    site, command, monkeypatch
):
    def fail(*_args):
        raise errors.TermError("another node is master")

    monkeypatch.setattr(new_master, "open_etcd", lambda *_a, **_k: fail())
    with pytest.raises(errors.OpExecError) as caught:
        command()
    text = (
        "another node is master. This command can be repeated, on this node or another"
    )
    assert str(caught.value).startswith(text)
    assert command.process.lines == []


def test_a_node_that_is_refused_leads_on_request_if_there_is_no_other(site, command):
    """The master was lost for good while it renewed the certificates."""
    files.write_file(site.paths.client_pem, x509.create_self_signed().pem)
    record_certificates(site, {site.master.uuid: "AA"})
    with pytest.raises(errors.OpPrereqError, match="master-failover --no-voting"):
        command()
    assert command(no_voting=True) is True
    assert command.leading == [site.own.uuid]


def test_a_plan_in_etcd_asks_for_no_promises(site, command):
    steps = failover.plan(site.paths, failover.FailoverOptions(), feedback=print)
    assert steps[0].startswith("take the leadership in etcd from ")
    assert len(steps) == 7


@pytest.mark.parametrize("failed", [True, False])
def test_an_old_master_that_keeps_the_address_is_a_warning(
    site, monkeypatch, caplog, failed
):
    answer = failure("it is dead") if failed else None
    nodes = FakeNodes(None, {"node_deactivate_master_ip": answer})
    closed = []

    def runner(source, _paths, term):
        nodes._snapshot = source
        nodes.close = lambda: closed.append(term)
        return nodes

    monkeypatch.setattr(new_master.rpc, "NetworkRunner", runner)
    with site.lead() as (opened, old):
        new_master._drop_address(site.paths, opened, old)
        cluster = opened.snapshot().cluster
        assert closed == [opened.term]
    ((node, args),) = nodes.called("node_deactivate_master_ip")
    wanted = master_ip.parameters(cluster)
    assert (node, list(args)) == (old.uuid, [wanted, cluster.use_external_mip_script])
    assert nodes.limits == {"node_deactivate_master_ip": {5.0}}
    text = "the old master did not remove the cluster's address"
    assert (text in caplog.text) is failed


def test_a_renewal_without_the_master_is_left_to_the_one_that_etcd_knows(site):
    with (
        site.lead(),
        pytest.raises(errors.OpPrereqError, match=f"itself: {site.own.name} is the m"),
    ):
        lost_master.caller(site.paths)
    with pytest.raises(errors.OpPrereqError, match="itself: start ganeti-standby"):
        lost_master.caller(site.paths)
    choice.write(site.paths, choice.prepare(parse("etcd://127.0.0.1:1")))
    with pytest.raises(errors.OpPrereqError, match="needs a majority of its servers"):
        lost_master.caller(site.paths)


@pytest.mark.parametrize(
    ("other", "left"), [(None, "node1.example.com"), ("node3", "node3")]
)
def test_a_failed_record_names_the_former_master_unless_another_node_is_it(
    tmp_path, other, left
):
    paths = Paths(root=str(tmp_path / "n2"), hostname="n2")
    os.makedirs(paths.data_dir)
    ssconf.write(paths, {new_master.KEY: "node1.example.com"})
    snapshot = clusters.snapshot(nodes=3)
    own = snapshot.nodes[clusters.node_uuid(2)]
    store = ssconf.SimpleStore(paths)
    with (
        pytest.raises(errors.TermError),
        new_master.recorded_here(paths, snapshot, own),
    ):
        assert store.master_node() == own.name
        if other:
            ssconf.write(paths, {new_master.KEY: other})
        raise errors.TermError("a higher term")
    assert store.master_node() == left
