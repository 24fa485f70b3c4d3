"""Jobs that wait for a frozen node do not keep the others from running."""

import contextlib
import time

import pytest

from fakes.patience import job_status, until

pytestmark = pytest.mark.daemon

#: Jobs that may run at once in a new cluster.
SLOTS = 20
#: Seconds for which a job acts on a node; it waits longer for one that is frozen.
ACT_S = 50.0


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(2)


@pytest.fixture
def client(cluster):
    with contextlib.closing(cluster.luxi()) as client:
        yield client


def delay(*nodes, duration_s=0.001):
    op = {"OP_ID": "OP_TEST_DELAY", "duration": duration_s, "reason": []}
    return [op | {"on_master": not nodes, "on_nodes": list(nodes), "no_locks": True}]


def log_calls(cluster, name):
    """Let a node daemon log its calls; return a function that counts those waiting."""
    with cluster.file("/etc/default/ganeti", name).open("a") as arguments:
        arguments.write("EXTRA_NODED_ARGS=-d\n")
    cluster.command("kill", name, "ganeti-noded")
    cluster.command("start", name, "ganeti-noded")
    log = cluster.file("/var/log/ganeti/node-daemon.log", name)
    return lambda: log.read_text().count("call test_delay")


@pytest.mark.sampled
def test_jobs_of_a_frozen_node_do_not_count_as_running(cluster, client):
    calls = log_calls(cluster, "node2")
    assert job_status(client, client.call("SubmitJob", [delay("node2")])) == "success"
    act = delay("node2", duration_s=ACT_S)
    blocked = [client.call("SubmitJob", [act]) for _ in range(SLOTS)]
    until("node2 works on all calls", lambda: calls() > SLOTS)
    cluster.command("pause", "node2")
    try:
        began = time.monotonic()
        assert job_status(client, client.call("SubmitJob", [delay()])) == "success"
        waited_s = time.monotonic() - began
        rows = client.call("QueryJobs", [blocked, ["status"]])
        assert rows == [["running"]] * SLOTS
    finally:
        cluster.command("resume", "node2")
    for job in blocked:
        client.call("CancelJob", [job, True])
    for job in blocked:
        job_status(client, job)
    # Without a free slot it waits for the time limit of the calls.
    assert waited_s < ACT_S / 2
