"""A node that missed the promotion of the present master obeys it nevertheless."""

import pytest

from fakes.patience import until

pytestmark = [pytest.mark.daemon, pytest.mark.sampled]


@pytest.fixture
def cluster(cluster_of):
    """Four nodes: two candidates and two others."""
    made = cluster_of(4)
    made.check("gnt-cluster", "modify", "-C", "2")
    for node in ("node3", "node4"):
        made.check("gnt-node", "modify", "-C", "no", made.node(node).name)
    made.wait_until_clean()
    return made


def uuid_of(cluster, node, master="node1"):
    with cluster.luxi(master) as client:
        rows = client.call("QueryNodes", [[], ["name", "uuid"], False])
    return dict(rows)[cluster.node(node).name]


def listed(cluster, node):
    """Return the UUIDs of the permitted callers that a node knows."""
    path = cluster.file("/var/lib/ganeti/ssconf_master_candidates_certs", node)
    return {line.partition("=")[0] for line in path.read_text().split()}


def promoted_behind_the_back_of_node4(cluster):
    """Make node3 the master while node4 is away."""
    cluster.check("daemon-util", "stop", "ganeti-noded", node="node4")
    cluster.check("gnt-node", "modify", "-C", "yes", cluster.node("node3").name)
    third = uuid_of(cluster, "node3")
    until("node3 lists itself", lambda: third in listed(cluster, "node3"))
    cluster.check("gnt-cluster", "master-failover", node="node3")
    assert third not in listed(cluster, "node4")
    return third


@pytest.mark.timeout(600)
def test_it_learns_of_the_promotion_through_another_candidate(cluster):
    third = promoted_behind_the_back_of_node4(cluster)
    cluster.check("daemon-util", "start", "ganeti-noded", node="node4")
    until("node4 lists node3", lambda: third in listed(cluster, "node4"))
    cluster.wait_until_clean("node3")
    name = cluster.node("node4").name
    cluster.check("gnt-node", "modify", "-C", "yes", name, node="node3")
    cluster.wait_until_clean("node3")


@pytest.mark.timeout(600)
def test_a_node_that_accepts_nobody_is_added_again(cluster):
    third = promoted_behind_the_back_of_node4(cluster)
    path = cluster.file("/var/lib/ganeti/ssconf_master_candidates_certs", "node4")
    path.chmod(0o644)
    path.write_text(f"{third}={':'.join(['00'] * 20)}\n")
    cluster.check("daemon-util", "start", "ganeti-noded", node="node4")
    log = cluster.file("/var/log/ganeti/master-daemon.log", "node3")
    until("the log names the command", lambda: "--readd" in log.read_text())
    name = cluster.node("node4").name
    cluster.check(
        "gnt-node", "add", "--readd", "--no-ssh-key-check", name, node="node3"
    )
    cluster.wait_until_clean("node3")


@pytest.mark.timeout(600)
def test_a_candidate_that_was_away_gets_its_rights_when_it_returns(cluster):
    uuid = uuid_of(cluster, "node4")
    cluster.check("daemon-util", "stop", "ganeti-noded", node="node4")
    result = cluster.run("gnt-cluster", "modify", "-C", "4")
    assert not result.failed, result.output
    assert "the master daemon tries again" in result.output
    assert uuid not in listed(cluster, "node1")
    assert not cluster.file("/var/lib/ganeti/server-key.pem", "node4").exists()
    cluster.check("daemon-util", "start", "ganeti-noded", node="node4")
    for node in ("node1", "node2", "node3", "node4"):
        until(f"{node} lists node4", lambda node=node: uuid in listed(cluster, node))
    assert cluster.file("/var/lib/ganeti/server-key.pem", "node4").exists()
    cluster.wait_until_clean()
    # It gets back the secrets that it loses later.
    lost = [
        cluster.file(f"/var/lib/ganeti/{name}", "node4")
        for name in ("server-key.pem", "rapi.pem", "cluster-domain-secret")
    ]
    before = [path.read_bytes() for path in lost]
    for path in lost:
        path.unlink()
    cluster.check("daemon-util", "stop", "ganeti-masterd")
    cluster.check("daemon-util", "start", "ganeti-masterd")
    until("node4 has the secrets", lambda: all(path.exists() for path in lost))
    assert [path.read_bytes() for path in lost] == before
    cluster.wait_until_clean()
