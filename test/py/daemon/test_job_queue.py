"""The job queue of a real master daemon: cancel, priorities, and a kill at work."""

import re
import threading

import pytest

from fakes.patience import PATIENCE_S, job_status, until
from ganeti import store
from ganeti.base import errors

pytestmark = pytest.mark.daemon


def delay(duration, *, locks=False, **rest):
    op = {"OP_ID": "OP_TEST_DELAY", "duration": duration, "on_master": True, **rest}
    if locks:
        where = {"on_nodes": ["node1.vc.test"], "on_master": False}
        op |= {"no_locks": False, **where}
    return op


def status(client, job_id):
    return client.call("QueryJobs", [[job_id], ["status"]])[0][0]


def hold_locks(client):
    """Start a job that holds the node's lock until it is killed; return its id."""
    # Each round is an occasion to be killed.
    holder = client.call("SubmitJob", [[delay(0.1, locks=True, repeat=6000)]])
    job_status(client, holder, ("running",))
    return holder


def end(client, holder):
    assert client.call("CancelJob", [holder, True])[0] is True
    job_status(client, holder)


@pytest.fixture
def client(vcluster):
    with vcluster.luxi() as made:
        yield made


def test_a_job_that_waits_for_locks_is_canceled_at_once(vcluster, client):
    holder = hold_locks(client)
    waiting = client.call("SubmitJob", [[delay(0.001, locks=True)]])
    job_status(client, waiting, ("waiting",))

    def waited_for():
        fields = ["name", "owner", "pending"]
        rows = client.call("Query", ["lock", fields, None])["data"]
        return [row for row in rows if row[1][1] == [str(holder)] and row[2][1]]

    # A job is waiting a moment before its request for the lock is.
    held = until("the request for the lock", waited_for)
    assert [row[2][1] for row in held] == [[["exclusive", [str(waiting)]]]]
    table = vcluster.check("gnt-debug", "locks", "-o", "name,owner,held")
    row = next(line for line in table.splitlines() if line.startswith(held[0][0][1]))
    assert re.fullmatch(rf"\S+ +{holder} +\d+\.\ds", row)
    assert client.call("CancelJob", [waiting])[0] is True
    assert job_status(client, waiting) == "canceled"
    assert status(client, holder) == "running"
    end(client, holder)


def test_a_killed_job_that_only_waits_ends_at_once(vcluster, client):
    job = client.call("SubmitJob", [[delay(600)]])
    job_status(client, job, ("running",))
    vcluster.check("gnt-job", "cancel", "--kill", "--yes-do-it", str(job))
    assert job_status(client, job) == "error"


def test_no_acknowledged_job_is_lost_when_the_master_is_killed(vcluster, client):
    running = client.call("SubmitJob", [[delay(600, locks=True), delay(0.001)]])
    job_status(client, running, ("running",))
    waiting = client.call("SubmitJob", [[delay(0.001, locks=True)]])
    job_status(client, waiting, ("waiting",))
    ended = client.call("SubmitJob", [[delay(0.001)]])
    assert job_status(client, ended) == "success"
    acknowledged = submit_while_killing(vcluster)
    vcluster.control.start_daemon(vcluster.master, "ganeti-masterd")
    client.close()
    rows = client.call("QueryJobs", [None, ["id", "status", "opstatus", "opresult"]])
    actual = {row[0]: row[1:] for row in rows}
    assert len(acknowledged) > 10
    assert set(acknowledged) <= set(actual)
    assert actual[running][:2] == ["error", ["error", "error"]]
    assert "nclean" in actual[running][2][0]
    assert actual[ended][0] == "success"
    for job_id in (waiting, *acknowledged):
        assert job_status(client, job_id) == "success"
    assert client.call("SubmitJob", [[delay(0.001)]]) > max(actual)


@pytest.mark.parametrize("_round", range(3))
def test_log_lines_survive_a_kill_at_the_moment_of_an_act(vcluster, client, _round):
    job = client.call("SubmitJob", [[delay(60, locks=True, repeat=3)]])
    until("the line on disk", lambda: job in jobs_with_stored_logs(vcluster))
    vcluster.control.kill(vcluster.master, "ganeti-masterd")
    vcluster.control.start_daemon(vcluster.master, "ganeti-masterd")
    client.close()
    assert "Test delay iteration 1/4" in log_of(client, job)[0]
    assert job_status(client, job) == "error"


def jobs_with_stored_logs(vcluster):
    follower = store.Follower(vcluster.paths().store_db)
    try:
        rows = follower._db.tables.scan_some("joblogs", None, "")
        return {int(key.partition("/")[0]) for key, _data in rows}
    finally:
        follower.close()


def log_of(client, job):
    ((oplog,),) = client.call("QueryJobs", [[job], ["oplog"]])
    return [entry[-1] for op in oplog for entry in op]


def submit_while_killing(vcluster):
    """Return the ids given out to several clients until the daemon died."""
    acknowledged, enough = [], threading.Event()

    def submit():
        with vcluster.luxi() as mine:
            while True:
                try:
                    job_id = mine.call("SubmitJob", [[delay(0.001, locks=True)]])
                except (errors.GenericError, OSError):
                    return
                acknowledged.append(job_id)
                if len(acknowledged) > 10:
                    enough.set()

    threads = [threading.Thread(target=submit, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert enough.wait(PATIENCE_S)
    vcluster.control.kill(vcluster.master, "ganeti-masterd")
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return acknowledged


def test_jobs_that_wait_for_a_lock_do_not_stop_others(client):
    holder = hold_locks(client)
    # More than may run at once.
    rows = client.call("SubmitManyJobs", [[[delay(0.001, locks=True)]] * 40])
    waiting = [job_id for _, job_id in rows]
    other = client.call("SubmitJob", [[delay(0.001)]])
    assert job_status(client, other) == "success"
    assert status(client, holder) == "running"
    end(client, holder)
    assert {job_status(client, job_id) for job_id in waiting} == {"success"}
