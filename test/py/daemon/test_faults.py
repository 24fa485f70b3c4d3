"""Daemons are killed at any moment: no acknowledged job is lost, nothing is half done."""

import contextlib
import os
import pathlib
import socket
import threading
import time

import pytest

from fakes.patience import job_status, until
from ganeti import store
from ganeti.base import errors
from ganeti.decisions.jobs import records
from ganeti.protocols import luxi

pytestmark = pytest.mark.daemon

ADD_ON_NODE2 = (
    *("gnt-instance", "add", "-t", "diskless", "-H", "fake", "-o", "tiny+default"),
    *("--no-nics", "-n", "node2", "--no-install", "--no-start", "web9.vc.test"),
)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(2)


@pytest.fixture
def connect(cluster):
    """Make clients that are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(cluster.luxi()))


def delay(duration=0.001):
    return [{"OP_ID": "OP_TEST_DELAY", "duration": duration, "reason": []}]


def submit_until_broken(cluster, acknowledged):
    client = luxi.Client.of_node(cluster.paths(), retries=0)
    try:
        while True:
            acknowledged.append(client.call("SubmitJob", [delay()]))
    except errors.GenericError:
        client.close()


@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_master_loses_no_acknowledged_job(cluster, connect, attempt):
    acknowledged = []
    client = connect()
    client.call("SubmitJob", [delay()])
    worker = threading.Thread(target=submit_until_broken, args=(cluster, acknowledged))
    worker.start()
    while len(acknowledged) < 20 * (attempt + 1):
        client.call("QueryConfigValues", [["cluster_name"]])
    cluster.command("kill", "node1", "ganeti-masterd")
    worker.join()
    cluster.command("start", "node1", "ganeti-masterd")
    again = connect()
    rows = again.call("QueryJobs", [acknowledged, ["id", "status"]])
    assert [row[0] for row in rows] == acknowledged
    # Queued jobs go on; one that was running may only have failed, never vanished.
    assert {job_status(again, job) for job in acknowledged} <= {"success", "error"}


def test_a_running_job_ends_as_failed_and_the_cluster_goes_on(cluster, connect):
    client = connect()
    job = client.call("SubmitJob", [delay(600.0)])
    assert job_status(client, job, ("running",)) == "running"
    # Before its start is on disk it has done nothing, and would run again.
    with contextlib.closing(store.Follower(cluster.paths().store_db)) as follower:

        def is_stored():
            data = follower.read("jobs", str(job))
            return data and records.decode_job(data).ops[0].status == "running"

        until("the start on disk", is_stored)
    cluster.command("kill", "node1", "ganeti-masterd")
    cluster.command("start", "node1", "ganeti-masterd")
    again = connect()
    assert job_status(again, job) == "error"
    assert job_status(again, again.call("SubmitJob", [delay()])) == "success"


def test_a_killed_node_daemon_fails_the_job_that_needs_it_and_comes_back(cluster):
    cluster.command("kill", "node2", "ganeti-noded")
    actual = cluster.run(*ADD_ON_NODE2)
    assert actual.code == 1
    assert "node2" in actual.output
    assert "Traceback" not in actual.output
    cluster.command("start", "node2", "ganeti-noded")
    cluster.check(*ADD_ON_NODE2)
    cluster.check("gnt-instance", "remove", "-f", "web9.vc.test")


def timed(cluster, *argv):
    began = time.monotonic()
    done = cluster.run(*argv)
    return done, time.monotonic() - began


def test_a_frozen_node_holds_up_nobody_for_long(cluster):
    volumes = ("gnt-node", "list", "-o", "name,mtotal", "--no-headers")
    assert "?" not in cluster.check(*volumes)
    cluster.command("pause", "node2")
    try:
        # Its connection is kept: only a new one shows that nobody answers there.
        actual, first_s = timed(cluster, *volumes)
        again, second_s = timed(cluster, *volumes)
        act = cluster.run(*ADD_ON_NODE2)
    finally:
        cluster.command("resume", "node2")
    for done in (actual, again):
        rows = dict(line.split() for line in done.output.splitlines())
        assert rows["node2.vc.test"] == "?"
        assert rows["node1.vc.test"] != "?"
    # Some seconds each; a call that waits to its own end takes a minute or more.
    assert first_s < 55
    assert second_s < 55
    assert act.code == 1
    # A call that waited for its own time limit would not report this.
    assert "accepts connections but does not answer" in act.output
    assert "?" not in cluster.check(*volumes)


def test_verify_is_clean_after_all_of_it(cluster):
    cluster.wait_until_clean()


# Daemons give back what they took: descriptors, threads, memory.

JOBS, CONNECTIONS = 2000, 500
#: Threads and kept connections that may come and go.
SLACK = 12


def daemons(cluster):
    """Return {daemon on node: pid}."""
    actual = {}
    for node in cluster.layout.nodes:
        for process in cluster.control.processes_on(node):
            if process.name in ("ganeti-masterd", "ganeti-noded"):
                actual[f"{process.name} on {node.short}"] = process.pid
    return actual


def usage(pid):
    """Return (descriptors, threads, resident MiB) of a process."""
    base = pathlib.Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (base / "status").read_text().splitlines()
    )
    resident = int(status["VmRSS"].split()[0]) // 1024
    return len(os.listdir(base / "fd")), int(status["Threads"]), resident


def use(cluster):
    return {name: usage(pid) for name, pid in daemons(cluster).items()}


def run_jobs(cluster, count, on_nodes):
    job = [{"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_nodes": on_nodes}]
    job[0]["on_master"] = not on_nodes
    with contextlib.closing(cluster.luxi()) as client:
        rows = client.call("SubmitManyJobs", [[job] * count])
        assert all(fine for fine, _number in rows)
        numbers = [number for _fine, number in rows]
        ends = {job_status(client, number, timeout_s=600) for number in numbers}
        assert ends == {"success"}


def connect_and_leave(cluster, count):
    """Open many connections at once and hang up in the middle of things."""
    path = str(cluster.paths().query_socket)
    with contextlib.ExitStack() as stack:
        for index in range(count):
            sock = stack.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            )
            sock.settimeout(60)
            sock.connect(path)
            if index % 3 == 1:
                sock.sendall(b'{"method": "QueryClus')
            elif index % 3 == 2:
                sock.sendall(b'{"method": "QueryClusterInfo", "args": []}\3')


def knock(cluster, count):
    """Begin TLS handshakes with the node daemons and leave."""
    for index in range(count):
        node = cluster.layout.nodes[index % 2]
        with socket.create_connection((node.address, 1811), 60) as sock:
            sock.sendall(b"\x16\x03\x01" if index % 2 else b"GET / HTTP/1.0\r\n\r\n")


@pytest.mark.sampled
def test_jobs_and_connections_leave_nothing_behind(cluster):
    run_jobs(cluster, 100, [])
    run_jobs(cluster, 20, ["node1.vc.test", "node2.vc.test"])
    connect_and_leave(cluster, 50)
    before = use(cluster)
    run_jobs(cluster, JOBS, [])
    run_jobs(cluster, 100, ["node1.vc.test", "node2.vc.test"])
    connect_and_leave(cluster, CONNECTIONS)
    knock(cluster, 100)
    middle = use(cluster)
    run_jobs(cluster, JOBS, [])
    connect_and_leave(cluster, CONNECTIONS)
    knock(cluster, 100)

    def leaking():
        return {
            name: (was, now)
            for name, now in use(cluster).items()
            for was in [before[name]]
            if now[0] > was[0] + SLACK or now[1] > was[1] + SLACK
        }

    until("what was taken is given back", lambda: not leaking())
    # Ended jobs are on the disk, not in memory: a second round adds next to nothing.
    for name, now in use(cluster).items():
        assert now[2] < middle[name][2] + 24, f"{name}: {middle[name]} to {now}"


# Jobs that wait for a frozen node do not keep the others from running.

#: Jobs that may run at once in a new cluster.
SLOTS = 20
#: Seconds for which a job acts on a node; it waits longer for one that is frozen.
ACT_S = 50.0


@pytest.fixture
def client(cluster):
    with contextlib.closing(cluster.luxi()) as client:
        yield client


def node_delay(*nodes, duration_s=0.001):
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
    assert (
        job_status(client, client.call("SubmitJob", [node_delay("node2")])) == "success"
    )
    act = node_delay("node2", duration_s=ACT_S)
    blocked = [client.call("SubmitJob", [act]) for _ in range(SLOTS)]
    until("node2 works on all calls", lambda: calls() > SLOTS)
    cluster.command("pause", "node2")
    try:
        began = time.monotonic()
        assert job_status(client, client.call("SubmitJob", [node_delay()])) == "success"
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
