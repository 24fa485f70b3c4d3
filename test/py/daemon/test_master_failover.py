"""The master role moves: with the old master alive, dead, or asleep."""

import pytest

from fakes import failovers
from fakes.patience import job_status

pytestmark = pytest.mark.daemon
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}


def roles(cluster, node):
    lines = cluster.check(
        "gnt-node",
        "list",
        "--no-headers",
        "--separator=,",
        "-o",
        "name,role",
        node=node,
    )
    return dict(line.split(",") for line in lines.split())


def master_of(cluster, node):
    return cluster.check("gnt-cluster", "getmaster", node=node).strip()


@pytest.fixture
def cluster(vcluster):
    # Who is to take over must have what was written before.
    vcluster.wait_until_clean()
    yield vcluster
    if "node1" not in master_of(vcluster, "node1"):
        vcluster.check("gnt-cluster", "master-failover", node="node1")


def test_role_moves_with_its_jobs_and_comes_back(cluster):
    with cluster.luxi("node1") as client:
        key = client.call("ReplaceFilter", [None, 1, [], "PAUSE", []])
        waiting = client.call("SubmitJob", [[DELAY]])
    done = cluster.run("gnt-cluster", "master-failover", node="node2")
    assert not done.failed, done.output
    names = {number: cluster.node(f"node{number}").name for number in (1, 2, 3)}
    for number in names:
        assert master_of(cluster, f"node{number}") == names[2]
    assert roles(cluster, "node2") == {names[1]: "C", names[2]: "M", names[3]: "C"}
    with cluster.luxi("node2") as client:
        assert client.call("QueryJobs", [[waiting], ["status"]]) == [["queued"]]
        client.call("DeleteFilter", [key])
        assert job_status(client, waiting) == "success"
    # The old master is one no more, and says so.
    refused = cluster.run("gnt-node", "list", node="node1")
    assert refused.failed
    assert names[2] in refused.stderr
    cluster.check("gnt-cluster", "master-failover", node="node1")
    assert roles(cluster, "node1")[names[1]] == "M"


def test_who_cannot_take_over(cluster):
    on_master = cluster.run("gnt-cluster", "master-failover", node="node1")
    assert on_master.code == 1
    assert "is the master already" in on_master.stderr
    declined = cluster.run(
        "gnt-cluster", "master-failover", "--no-voting", node="node2"
    )
    assert declined.code == 1
    assert master_of(cluster, "node2") == cluster.node("node1").name


def test_needs_most_nodes(directory, command):
    up = command(directory, "up", "-n", "2", "--hypervisors", "fake")
    assert up.returncode == 0, up.stderr
    command(directory, "kill", "node1")
    alone = command(directory, "exec", "node2", "gnt-cluster", "master-failover")
    assert alone.returncode == 1
    assert "does not answer" in alone.stderr
    forced = command(
        directory,
        *("exec", "node2", "gnt-cluster", "master-failover"),
        *("--no-voting", "--yes-do-it"),
    )
    assert forced.returncode == 0, forced.stderr
    serving = command(directory, "exec", "node2", "gnt-node", "list", "-o", "name,role")
    assert serving.returncode == 0, serving.stderr
    # The old master comes back and finds itself replaced.
    command(directory, "start", "node1", "ganeti-noded")
    old = command(directory, "exec", "node1", "ganeti-masterd")
    assert old.returncode != 0


# Clients submit jobs while it moves: nothing is lost, somebody serves.
# ``test/bench/run failovers 200`` does the same for longer.


@pytest.mark.sampled
def test_failovers_of_a_live_busy_master(cluster_of):
    cluster = cluster_of(3)
    cluster.wait_until_clean()
    figures = failovers.run(cluster, ("node1", "node2", "node3"), 3)
    assert figures.is_good, f"{figures}\n{figures.refused}"
