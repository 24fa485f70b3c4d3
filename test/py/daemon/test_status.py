"""``gnt-cluster status`` on real daemons: well, with faults, and without a master."""

import contextlib
import json
import os
import signal

import pytest

from fakes.patience import until
from ganeti.base.filesystem import pidfile

pytestmark = pytest.mark.daemon


@pytest.fixture(scope="module")
def made(cluster_of):
    actual = cluster_of(3)
    actual.wait_until_clean()
    add = ("gnt-instance", "add", "-H", "fake", "-t", "diskless", "--no-install")
    actual.check(*add, "-o", "tiny+default", "--no-nics", "-n", "node2", "web1.vc.test")
    actual.check("gnt-instance", "startup", "web1.vc.test")
    return actual


@pytest.fixture
def cluster(made):
    """A cluster in which all is well; so it is left, too."""
    until("all is well", lambda: made.run("gnt-cluster", "status").code == 0)
    yield made
    for name in ("node1", "node2", "node3"):
        made.command("start", name)


def state(cluster):
    """Return the exit code and the document."""
    run = cluster.run("gnt-cluster", "status", "--json")
    assert run.stderr == ""
    return run.code, json.loads(run.stdout)


def subjects(document, severity="critical"):
    findings = document["findings"]
    return [(f["kind"], f["object"]) for f in findings if f["severity"] == severity]


@contextlib.contextmanager
def frozen(cluster, daemon, *names):
    """Stop daemons where they are."""
    files = [cluster.paths(name).pid_file(daemon) for name in names]
    pids = [pidfile.read_pid(path) for path in files]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.sampled
def test_a_cluster_that_is_well_fits_a_screen(cluster):
    run = cluster.run("gnt-cluster", "status")
    assert (run.code, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert ": OK, " in lines[0]
    code, document = state(cluster)
    assert (code, document["severity"], document["findings"]) == (0, "ok", [])
    assert document["nodes"]["online"] == 3
    assert document["instances"]["running"] == 1
    assert len(document["candidates"]) == 2
    assert document["capacity"]["memory_total"] > 0
    assert document["certificate"]["seconds_left"] > 0
    assert sum(document["releases"].values()) == 3


def test_an_instance_that_does_not_run_is_named_with_the_command(cluster):
    cluster.check("gnt-instance", "shutdown", "--no-remember", "web1.vc.test")
    code, document = state(cluster)
    assert (code, subjects(document)) == (2, [("instance", "web1.vc.test")])
    (finding,) = document["findings"]
    cluster.check(*finding["command"].split())
    assert state(cluster)[0] == 0


def test_failed_jobs_and_a_freeze_are_warnings(cluster):
    cluster.check("gnt-cluster", "freeze", "rack", "2")
    run = cluster.run("gnt-cluster", "status")
    assert run.code == 1
    assert "automation is frozen: rack 2\n  gnt-cluster thaw" in run.stdout
    cluster.check("gnt-cluster", "thaw")


@pytest.mark.sampled
def test_a_silent_node_is_a_finding(cluster):
    name = cluster.node("node2").name
    cluster.command("kill", "node2", "ganeti-noded")
    code, document = state(cluster)
    assert code == 2
    assert ("node", name) in subjects(document)
    assert document["nodes"]["silent"] == 1
    with frozen(cluster, "ganeti-noded", "node3"):
        _code, document = state(cluster)
        assert document["nodes"]["silent"] == 2


def test_without_a_majority_there_is_an_answer_that_says_so(cluster):
    with frozen(cluster, "ganeti-noded", "node2", "node3"):
        # Noticed with the next change.
        cluster.run("gnt-cluster", "add-tags", "late", timeout_s=90)
        code, document = state(cluster)
        assert code == 2
        assert document["findings"][0]["kind"] == "cluster"
        assert "no change is accepted" in document["findings"][0]["text"]
        assert not document["master"]["accepts_changes"]
        run = cluster.run("gnt-cluster", "status")
        assert "Changes:      refused" in run.stdout


@pytest.mark.sampled
def test_a_frozen_or_absent_master_is_one_sentence(cluster):
    with frozen(cluster, "ganeti-masterd", "node1"):
        run = cluster.run("gnt-cluster", "status")
        assert (run.code, run.stderr) == (2, "")
        (line,) = run.stdout.splitlines()
        assert "no answer within 3.5 seconds" in line
        assert "runs, but seems to hang" in line
    cluster.command("kill", "node1", "ganeti-masterd")
    code, document = state(cluster)
    (finding,) = document["findings"]
    assert (code, document["status"]) == (2, 2)
    assert "ganeti-masterd does not run on this node" in finding["text"]
    assert finding["command"].endswith("daemon-util start ganeti-masterd")


def test_another_node_names_the_master(cluster):
    run = cluster.run("gnt-cluster", "status", node="node3")
    assert run.code == 2
    assert cluster.node("node1").name in run.stdout
