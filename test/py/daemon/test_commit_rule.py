"""The commit rule on real daemons: silent candidates, frozen ones, interrupted steps."""

import contextlib
import json
import os
import pathlib
import signal

import pytest

from fakes.patience import job_status, start, until
from ganeti.base.filesystem import pidfile
from ganeti.master.config import config as header
from ganeti.store.copies import election as elections
from ganeti.store.database import Database

pytestmark = pytest.mark.daemon

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}


NAMES = ("node1", "node2", "node3")


@pytest.fixture(scope="module")
def made(cluster_of):
    actual = cluster_of(3)
    actual.wait_until_clean()
    return actual


@pytest.fixture
def cluster(made):
    """A cluster whose master is node1, with everything up; so it is left, too."""
    wait_for_copies(made, "node1")
    yield made
    for name in NAMES:
        made.command("start", name, "ganeti-noded")
    if not pidfile.is_locked(made.paths("node1").pid_file("ganeti-masterd")):
        made.check("gnt-cluster", "master-failover", node="node1")
    for name in NAMES:
        made.command("start", name)


def copies(cluster, node="node1"):
    with cluster.luxi(node) as client:
        return client.call("QueryCopies")


def wait_for_copies(cluster, node, count=2):
    def are_current():
        rows = copies(cluster, node)["copies"]
        return sum(row["is_current"] and not row["lag"] for row in rows) == count

    until("copies", are_current)


def tags(cluster, node):
    return cluster.check("gnt-cluster", "list-tags", node=node).split()


def freeze(cluster, names, number):
    for name in names:
        pid = pidfile.read_pid(cluster.paths(name).pid_file("ganeti-noded"))
        os.kill(pid, number)


@contextlib.contextmanager
def frozen(cluster, *names):
    """Stop node daemons where they are."""
    freeze(cluster, names, signal.SIGSTOP)
    try:
        yield
    finally:
        freeze(cluster, names, signal.SIGCONT)


def test_nothing_is_acknowledged_without_a_majority(cluster):
    with cluster.luxi() as client:
        with frozen(cluster, "node2", "node3"):
            submit = start(lambda: client.call("SubmitJob", [[DELAY]]))
            until("refusal", lambda: copies(cluster)["warning"])
            refused = cluster.run("gnt-cluster", "add-tags", "unsafe")
            assert refused.failed
            assert "changes are refused" in refused.stderr
            assert "are refused" in cluster.check("gnt-cluster", "info")
        job = submit.result(90)
        assert client.call("QueryJobs", [[job], ["id"]]) == [[job]]
    assert "unsafe" not in tags(cluster, "node1")


@pytest.mark.sampled
def test_commands_end_when_the_majority_disappears_under_them(cluster):
    """Both the one that submits and the one whose job runs; the jobs go on later."""
    names = [cluster.node(name).name for name in ("node2", "node3")]
    with cluster.luxi() as client:
        job = client.call("SubmitJob", [[{**DELAY, "duration": 10}]])
        until("the job runs", lambda: job_state(client, job) == "running")
    with frozen(cluster, "node2", "node3"):
        watch = start(lambda: cluster.run("gnt-job", "watch", str(job), timeout_s=90))
        until("refusal", lambda: copies(cluster)["warning"])
        ended = watch.result(90)
        again = cluster.run("gnt-job", "watch", str(job), timeout_s=90)
        for run in (ended, again):
            assert run.code == 1, run.output
            assert "outcome unknown: changes are refused" in run.stderr
            assert f"missing: {', '.join(names)}" in run.stderr
            assert f"Job {job} goes on by itself" in run.stderr
    # Until the copies are connected again a call that waits is refused as before.
    until("a majority", lambda: not copies(cluster)["warning"])
    with cluster.luxi() as client:
        assert job_status(client, job) == "success"
    with frozen(cluster, "node2", "node3"):
        added = cluster.run("gnt-cluster", "add-tags", "late", timeout_s=90)
        assert added.code == 1, added.output
        assert "The submission of jobs goes on by itself" in added.stderr
    until("the tag", lambda: "late" in tags(cluster, "node1"))


def job_state(client, job):
    return client.call("QueryJobs", [[job], ["status"]])[0][0]


@pytest.mark.sampled
def test_availability_goes_on_and_warns_on_stderr(cluster):
    cluster.check("gnt-cluster", "modify", "--commit-policy=availability")
    wait_for_copies(cluster, "node1")
    with frozen(cluster, "node2", "node3"):
        cluster.check("gnt-cluster", "add-tags", "first")
        done = cluster.run("gnt-cluster", "add-tags", "second")
        assert not done.failed, done.output
        assert "no majority of the 3 master candidates" in done.stderr
        assert "Warning" not in done.stdout
        fields = "name,copy_state,copy_lag"
        rows = cluster.check("gnt-node", "list", "--no-headers", "-o", fields)
        assert rows.count("behind") == 2
    wait_for_copies(cluster, "node1")
    cluster.check("gnt-cluster", "modify", "--commit-policy=majority")


def test_a_stale_candidate_does_not_become_master_unnoticed(cluster):
    names = {number: cluster.node(f"node{number}").name for number in (1, 2, 3)}
    cluster.command("kill", "node3")
    cluster.check("gnt-cluster", "add-tags", "acknowledged")
    cluster.command("kill", "node1")
    cluster.command("kill", "node2")
    cluster.command("start", "node3", "ganeti-noded")
    failover = ("gnt-cluster", "master-failover", "--no-voting", "--yes-do-it")
    refused = cluster.run(*failover, node="node3")
    assert refused.code == 1
    assert f"not heard: {names[1]}, {names[2]}" in refused.stderr
    assert "may be on those alone" in refused.stderr
    # With one more copy there is a majority, and it has the tag.
    cluster.command("start", "node2", "ganeti-noded")
    done = cluster.run(*failover, node="node3", timeout_s=200)
    assert "acknowledged" in tags(cluster, "node3"), done.output


def numbers(cluster, node):
    """Submit a job; return its id, the configuration's serial and the revision."""
    with cluster.luxi(node) as client:
        job = client.call("SubmitJob", [[DELAY]])
        assert job_status(client, job) == "success"
    db = Database(cluster.paths(node).store_db, create=False)
    try:
        serial = header.Header.decode(
            db.tables.read("meta", header.HEADER_KEY)
        ).serial_no
        return job, serial, db.position().revision
    finally:
        db.close()


@pytest.mark.sampled
def test_accepted_loss_is_kept_and_listed(cluster):
    cluster.command("kill", "node2")
    cluster.check("gnt-cluster", "add-tags", "lost")
    before = numbers(cluster, "node1")
    cluster.command("kill", "node3")
    cluster.command("kill", "node1")
    cluster.command("start", "node2", "ganeti-noded")
    words = ("--accept-loss", "--no-voting", "--yes-do-it")
    done = cluster.run(
        "gnt-cluster", "master-failover", *words, node="node2", timeout_s=200
    )
    assert "may be on those alone" in done.stderr
    assert "lost" not in tags(cluster, "node2")
    # No number of a lost change, configuration or job is used again.
    after = numbers(cluster, "node2")
    assert all(new > old for new, old in zip(after, before, strict=True)), after
    for name in ("node1", "node3"):
        cluster.command("start", name, "ganeti-noded")
    wait_for_copies(cluster, "node2")
    listed = cluster.check("gnt-cluster", "lost-changes", node="node1")
    assert "set cluster" in listed
    assert "TAGS" in listed
    words = ("gnt-cluster", "lost-changes", "--json")
    (branch,) = json.loads(cluster.check(*words, node="node1"))
    assert branch["groups"][0]["revision"] > 0
    assert [op for job in branch["jobs"] for op in job["opcodes"]], listed


@pytest.mark.sampled
def test_numbers_of_a_master_that_a_majority_replaced_are_left_out(cluster):
    for name in ("node1", "node3"):
        cluster.command("kill", name)
    words = ("--accept-loss", "--no-voting", "--yes-do-it")
    cluster.run("gnt-cluster", "master-failover", *words, node="node2", timeout_s=200)
    shown = numbers(cluster, "node2")
    cluster.command("kill", "node2")
    # The others know nothing of that, and their term gets ahead of it.
    for name in ("node1", "node3"):
        cluster.command("start", name, "ganeti-noded")
    cluster.command("start", "node1")
    words = ("gnt-cluster", "master-failover")
    done = cluster.run(*words, node="node3", timeout_s=200)
    wait_for_copies(cluster, "node3", 1)
    assert numbers(cluster, "node3")[0] < shown[0], done.output
    cluster.command("start", "node2", "ganeti-noded")
    wait_for_copies(cluster, "node3")
    after = numbers(cluster, "node3")
    assert all(new > old for new, old in zip(after, shown, strict=True)), after


@pytest.mark.sampled
def test_the_watcher_makes_a_refused_master_take_a_higher_term(cluster):
    words = ("--accept-loss", "--no-voting", "--yes-do-it")
    with frozen(cluster, "node1", "node3"):
        cluster.run(
            "gnt-cluster", "master-failover", *words, node="node2", timeout_s=200
        )
        cluster.command("kill", "node2", "ganeti-masterd")
    # A majority never heard of the term that node2 took.
    until(
        "refusal",
        lambda: any(row["wants_restart"] for row in copies(cluster)["copies"]),
    )
    before = copies(cluster)["term"]
    # It is done when no job runs.
    until(
        "idle",
        lambda: (
            not cluster.check("gnt-job", "list", "--running", "--no-headers", "-oid")
        ),
    )
    cluster.check("ganeti-watcher", "--no-wait-children")
    wait_for_copies(cluster, "node1")
    assert int(copies(cluster)["term"].split(":")[0]) > int(before.split(":")[0])
    cluster.check("ganeti-watcher", "--wait-children")


@pytest.mark.sampled
def test_a_start_that_accepts_loss_leaves_out_numbers(cluster):
    before = numbers(cluster, "node1")
    for name in ("node1", "node2", "node3"):
        cluster.command("kill", name, "ganeti-noded")
    cluster.command("kill", "node1", "ganeti-masterd")
    cluster.command("start", "node1", "ganeti-noded")
    util = cluster.paths().daemon_util
    words = ("start", "ganeti-masterd", "--no-voting", "--yes-do-it")
    cluster.check(util, *words)
    after = numbers(cluster, "node1")
    job, serial, revision = (new - old for new, old in zip(after, before, strict=True))
    assert job > 1000
    assert serial >= 1_000_000
    assert revision > 1000


@pytest.mark.sampled
def test_a_start_without_a_vote_can_wait_for_a_majority(cluster):
    before = numbers(cluster, "node1")
    cluster.command("kill", "node1", "ganeti-masterd")
    for name in ("node2", "node3"):
        cluster.command("kill", name, "ganeti-noded")
    log = pathlib.Path(cluster.paths().log_dir) / "master-daemon.log"
    offset = log.stat().st_size
    words = ("--no-voting", "--require-majority", "--yes-do-it")
    util = cluster.paths().daemon_util
    begun = start(lambda: cluster.check(util, "start", "ganeti-masterd", *words))
    until("election", lambda: "election 1 of 6" in log.read_text()[offset:])
    assert not os.path.exists(cluster.paths().master_socket)
    cluster.command("start", "node2", "ganeti-noded")
    begun.result(90)
    assert copies(cluster)["warning"] == ""
    after = numbers(cluster, "node1")
    assert after[0] == before[0] + 1


@pytest.mark.sampled
def test_an_interrupted_failover_can_be_repeated(cluster):
    paths = cluster.paths("node2")
    own = next(
        uuid
        for uuid, name in uuids(cluster).items()
        if name == cluster.node("node2").name
    )
    # It ends after the fence: the old master ends, and there is none.
    with elections.asking(paths) as ask:
        elections.elector(paths, own, ask, frozenset()).elect(is_takeover=True)
    pid_file = cluster.paths("node1").pid_file("ganeti-masterd")
    until("the old master to end", lambda: not pidfile.is_locked(pid_file))
    done = cluster.run("gnt-cluster", "master-failover", node="node2")
    assert not done.failed, done.output
    # It ends before the master daemons are started.
    cluster.command("kill", "node2", "ganeti-masterd")
    again = cluster.run("gnt-cluster", "master-failover", node="node2")
    assert not again.failed, again.output
    assert copies(cluster, "node2")["warning"] == ""
    refused = cluster.run("gnt-cluster", "master-failover", node="node2")
    assert "is the master already" in refused.stderr


def uuids(cluster):
    with cluster.luxi() as client:
        rows = client.call("QueryNodes", [[], ["uuid", "name"], False])
    return dict(rows)


@pytest.mark.sampled
def test_failback_during_a_long_job_leaves_a_serving_master(cluster):
    long = {"OP_ID": "OP_TEST_DELAY", "duration": 600, "on_master": True}
    with cluster.luxi() as client:
        job = client.call("SubmitJob", [[long]])
        until(
            "the job to run",
            lambda: client.call("QueryJobs", [[job], ["status"]]) == [["running"]],
        )
    there = cluster.run("gnt-cluster", "master-failover", node="node2")
    assert not there.failed, there.output
    back = cluster.run("gnt-cluster", "master-failover", node="node1")
    assert not back.failed, back.output
    with cluster.luxi() as client:
        assert client.call("QueryJobs", [[job], ["id"]]) == [[job]]


def restart(cluster, *, stop_first):
    """Stop and start the master as an operator does; return the exit codes."""
    util = cluster.paths().daemon_util
    if stop_first:
        codes = [cluster.run(util, "stop-master").code]
        return [*codes, cluster.run(util, "start-master").code]
    stop = start(lambda: cluster.run(util, "stop-master").code)
    until("stop", lambda: not os.path.exists(cluster.paths().master_socket))
    return [cluster.run(util, "start-master").code, stop.result(90)]


@pytest.mark.sampled
@pytest.mark.parametrize("stop_first", [True, False])
def test_restart_during_a_long_job_leaves_a_serving_master(cluster, stop_first):
    with cluster.luxi() as client:
        long = client.call("SubmitJob", [[{**DELAY, "duration": 300}]])
        assert job_status(client, long, ("running",)) == "running"
        queued = client.call(
            "SubmitJob", [[{**DELAY, "depends": [[long, ["error", "success"]]]}]]
        )
    pid = pidfile.read_pid(cluster.paths().pid_file("ganeti-masterd"))
    assert restart(cluster, stop_first=stop_first) == [0, 0]
    assert pidfile.read_pid(cluster.paths().pid_file("ganeti-masterd")) != pid
    with cluster.luxi() as client:
        assert job_status(client, long) == "error"
        [[result]] = client.call("QueryJobs", [[long], ["opresult"]])
        assert "Unclean master daemon shutdown" in str(result)
        assert job_status(client, queued) == "success"


def test_a_short_opcode_is_waited_for(cluster):
    with cluster.luxi() as client:
        short = client.call("SubmitJob", [[{**DELAY, "duration": 3}]])
        assert job_status(client, short, ("running",)) == "running"
    assert restart(cluster, stop_first=True) == [0, 0]
    with cluster.luxi() as client:
        assert job_status(client, short) == "success"
