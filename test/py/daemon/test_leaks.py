"""Daemons give back what they took: descriptors, threads, memory."""

import contextlib
import os
import pathlib
import socket

import pytest

from fakes.patience import job_status, until

pytestmark = pytest.mark.daemon
JOBS, CONNECTIONS = 2000, 500
#: Threads and kept connections that may come and go.
SLACK = 12


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(2)


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
        ends = {job_status(client, number, timeout_s=200) for number in numbers}
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
