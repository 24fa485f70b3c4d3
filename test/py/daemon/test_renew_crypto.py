"""``gnt-cluster renew-crypto``: everything new, and everything works afterwards."""

import subprocess

import pytest

from fakes import ended
from fakes.patience import until
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import files
from ganeti.base.process import SystemRunner
from ganeti.base.tls import authority, x509
from ganeti.bootstrap import crypto, renew_crypto
from ganeti.store.database import Database

EVERYTHING = (
    "--new-cluster-certificate",
    "--new-rapi-certificate",
    "--new-spice-certificate",
    "--new-confd-hmac-key",
    "--new-cluster-domain-secret",
)
NAMES = ("server.pem", "rapi.pem", "spice.pem", "hmac.key", "cluster-domain-secret")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(2)


def content(cluster, name, node="node1"):
    return cluster.file(f"/var/lib/ganeti/{name}", node).read_bytes()


def assert_clean(cluster):
    cluster.wait_until_clean()
    for node in ("node1", "node2"):
        server = cluster.file("/var/lib/ganeti/server.pem", node)
        own = x509.load_certificate(str(cluster.paths(node).client_pem))
        own.verify_directly_issued_by(x509.load_certificate(str(server)))


@pytest.mark.timeout(600)
def test_everything_is_new_on_all_nodes_and_the_old_is_kept(cluster):
    old = {name: content(cluster, name) for name in NAMES}
    cluster.check("gnt-cluster", "renew-crypto", "-f", *EVERYTHING)
    for name in NAMES:
        assert content(cluster, name) != old[name]
        assert content(cluster, name, "node2") == content(cluster, name)
        kept = cluster.file("/var/backups").glob(f"{name}.backup-*")
        assert old[name] in [path.read_bytes() for path in kept]
    assert_clean(cluster)


@pytest.mark.timeout(600)
def test_node_certificates_alone_need_no_restart(cluster):
    pid = cluster.file("/var/run/ganeti/ganeti-masterd.pid").read_text()
    old = {node: content(cluster, "client.pem", node) for node in ("node1", "node2")}
    cluster.check("gnt-cluster", "renew-crypto", "-f", "--new-node-certificates")
    assert cluster.file("/var/run/ganeti/ganeti-masterd.pid").read_text() == pid
    assert all(content(cluster, "client.pem", node) != old[node] for node in old)
    # The master daemon's own pushes of what was in between may come late.
    until(
        "no certificate is in between",
        lambda: b"-next" not in content(cluster, "ssconf_master_candidates_certs"),
    )
    assert_clean(cluster)


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_killed_half_way_it_can_be_run_again(cluster):
    argv = ["gnt-cluster", "renew-crypto", "-f", *EVERYTHING]
    node = cluster.node("node1")
    with subprocess.Popen(
        cluster.control.argv(node, argv),
        env=cluster.control.environment(node),
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        for line in running.stdout:
            if line.startswith("Stopping daemons on node1"):
                # The other node is through with it; asleep, it takes no file.
                cluster.command("pause", "node2")
            if line.startswith("Copying"):
                running.kill()
                break
    cluster.command("resume", "node2")
    running_now = {process.name for process in cluster.control.processes_on(node)}
    assert "ganeti-masterd" not in running_now
    cluster.check(*argv)
    assert_clean(cluster)
    assert content(cluster, "hmac.key", "node2") == content(cluster, "hmac.key")


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_a_watcher_that_starts_a_daemon_in_between_does_no_harm(cluster):
    steps = []

    def feedback(text):
        steps.append(text)
        if text.startswith("Updating"):
            # The watcher's lock is held on the master alone.
            cluster.check("ganeti-watcher", node="node2")
            assert "ganeti-noded" in daemons_on(cluster, "node2")

    failed = renew_crypto.renew(
        cluster.paths(),
        SystemRunner(),
        SystemClock(),
        renew_crypto.RenewOptions(cluster_certificate=True, check_host_keys=False),
        feedback=feedback,
    )
    assert any(text.startswith("Updating") for text in steps)
    assert failed == []
    cluster.check("gnt-cluster", "renew-crypto", "-f", "--new-node-certificates")
    assert_clean(cluster)


def position(cluster, node):
    db = Database(cluster.paths(node).store_db, create=False)
    try:
        return db.position()
    finally:
        db.close()


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_the_new_certificate_is_committed_by_an_elected_master(cluster):
    cluster.wait_until_clean()
    with cluster.luxi() as client:
        uuids = dict(client.call("QueryNodes", [[], ["name", "uuid"], False]))
    master = uuids[cluster.node("node1").name]
    before = position(cluster, "node1")
    owners, states = set(), []

    def feedback(text):
        states.append((text, position(cluster, "node1"), position(cluster, "node2")))
        owners.update(state.term.owner for state in states[-1][1:])

    options = renew_crypto.RenewOptions(cluster_certificate=True, check_host_keys=False)
    failed = renew_crypto.renew(
        cluster.paths(), SystemRunner(), SystemClock(), options, feedback=feedback
    )
    assert failed == []
    assert owners == {master}
    # Before the master daemon starts, the candidate has what the master has.
    text, own, other = states[-1]
    assert text == f"Starting master daemons on {cluster.node('node1').name}"
    assert own == other
    assert own.revision > before.revision
    assert own.term.number > before.term.number
    cluster.check("gnt-cluster", "renew-crypto", "-f", "--new-node-certificates")
    assert_clean(cluster)


def daemons_on(cluster, node):
    actual = cluster.control.processes_on(cluster.node(node))
    return {process.name for process in actual}


def end_all(cluster, names):
    """Give nodes an authority and certificates that have ended."""
    issuer = crypto.load_authority(cluster.paths(names[0]))
    expired = ended.again(issuer)
    for name in names:
        paths = cluster.paths(name)
        uuid = authority.node_uuid(paths.client_pem)
        host = cluster.node(name).name
        own = authority.issue_with_key(
            issuer, name=host, uuid=uuid, serial=1, validity_s=-60
        )
        files.write_file(paths.client_pem, own.pem, mode=0o440)
        files.write_file(paths.server_pem, expired.certificate_pem, mode=0o440)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_one_of_two_candidates_goes_on_when_the_other_one_is_lost_for_good(cluster_of):
    cluster = cluster_of(2)
    cluster.check("gnt-cluster", "add-tags", "kept")
    end_all(cluster, ("node1", "node2"))
    cluster.command("kill", "node1")
    cluster.command("kill", "node2")
    cluster.command("start", "node2")
    renew = ("gnt-cluster", "renew-crypto", "-f", "--new-cluster-certificate")
    renew += ("--without-master",)
    refused = cluster.run(*renew, node="node2")
    assert refused.code == 1
    assert "name them with --lost-candidates" in refused.stderr
    lost = cluster.node("node1").name
    done = cluster.run(*renew, "--lost-candidates", lost, node="node2")
    assert "run 'gnt-cluster master-failover' now" in done.stdout
    cluster.check("gnt-cluster", "master-failover", node="node2")
    assert "kept" in cluster.check("gnt-cluster", "list-tags", node="node2").split()
    cluster.check("gnt-cluster", "add-tags", "later", node="node2")
    cluster.command("start", "node1")
    cluster.check("gnt-node", "add", "--readd", lost, node="node2")
    cluster.wait_until_clean("node2")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ended_certificates_are_renewed_without_the_lost_master(cluster_of):
    cluster = cluster_of(3)
    cluster.check("gnt-cluster", "add-tags", "kept")
    names = ("node1", "node2", "node3")
    end_all(cluster, names)
    renew = ("gnt-cluster", "renew-crypto", "-f", "--new-cluster-certificate")
    renew += ("--without-master",)
    refused = cluster.run(*renew, node="node2")
    assert refused.code == 1
    assert "ganeti-masterd runs on node1" in refused.stderr
    cluster.command("kill", "node1")
    for name in names[1:]:
        cluster.command("kill", name)
        cluster.command("start", name)
    refused = cluster.run("gnt-cluster", "master-failover", node="node2")
    assert refused.code == 1
    assert "--without-master" in refused.stderr
    cluster.check(*renew, node="node2")
    cluster.check("gnt-cluster", "master-failover", node="node2")
    assert "kept" in cluster.check("gnt-cluster", "list-tags", node="node2").split()
    cluster.command("start", "node1")
    readd = ("gnt-node", "add", "--readd", cluster.node("node1").name)
    cluster.check(*readd, node="node2")
    cluster.wait_until_clean("node2")
