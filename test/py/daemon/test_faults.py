"""Daemons are killed at any moment: no acknowledged job is lost, nothing is half done."""

import contextlib
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
