"""``harep`` against a fake master: what it asks, submits, tags and prints."""

import os
import re
import sys

import pytest

from fakes.broken_cluster import BrokenCluster
from ganeti.automation import autorepair
from ganeti.base import errors, pathutils
from ganeti.commands.htools import harep, sources
from ganeti.decisions.repair import tags

P = tags.PREFIX


@pytest.fixture
def simulation(monkeypatch):
    made = BrokenCluster()
    monkeypatch.setattr(sources, "connect", lambda _path, **_options: made)
    return made


@pytest.fixture
def run(monkeypatch, capsys, simulation, tmp_path):
    root = tmp_path / "n1.tst"
    root.mkdir()
    monkeypatch.setenv("GANETI_ROOTDIR", str(root))
    monkeypatch.setenv("GANETI_HOSTNAME", root.name)

    def call(*args, status=0):
        monkeypatch.setattr(sys, "argv", ["harep", *args])
        assert harep.main() == status
        return capsys.readouterr()

    return call


def counts(out):
    head, heading, rest = out.partition(
        "---------------------\nInstance status count\n---------------------\n"
    )
    assert heading, head
    return dict(line.split(": ") for line in rest.splitlines())


def test_all_is_well(run, simulation):
    assert counts(run().out) == {"Healthy": "2"}
    assert simulation.master.jobs == {}


def test_the_way_from_broken_to_healthy(run, simulation):
    simulation.fail()
    first = run("--job-delay", "2.5")
    assert counts(first.out) == {"Needs repair": "1", "Pending repair": "1"}
    assert "b: its node is offline; this requires reinstall" in first.out
    assert simulation.submitted() == [["OP_TEST_DELAY", "OP_INSTANCE_FAILOVER"]]
    (tag,) = simulation.tags()
    assert re.fullmatch(rf"{P}pending:failover:[0-9a-f-]{{36}}:\d+:3", tag)
    (refused,) = simulation.tags("b")
    assert ":enoperm:" in refused
    second = run()
    assert counts(second.out) == {"Healthy": "1", "Needs repair": "1"}
    assert 'Moving a from "Pending repair" to "Healthy"' in second.out
    (tag,) = simulation.tags()
    assert ":success:3" in tag
    assert simulation.tags("b") == [refused]
    jobs = len(simulation.master.jobs)
    run()
    assert len(simulation.master.jobs) == jobs


def test_jobs_record_who_submitted_them_and_why(run, simulation):
    simulation.fail()
    run("--reason", "night shift")
    for job in simulation.master.jobs.values():
        for op in job:
            assert tuple(op.reason[0][:2]) == ("harep", "night shift")
            assert op.comment.startswith("automated repairs by harep")
    (move,) = [op for op in simulation.master.jobs[3] if "FAILOVER" in op.op_id()]
    assert move.iallocator == "."
    source, text = move.reason[1][:2]
    (tag,) = simulation.tags()
    assert source == "autorepair"
    assert text == (
        f"{tag.removesuffix('3')} its primary node is offline, permitted by"
        f" {P}failover of the cluster"
    )


def test_no_delay_when_none_is_wanted(run, simulation):
    simulation.fail()
    run("--job-delay=0")
    assert simulation.submitted() == [["OP_INSTANCE_FAILOVER"]]


def test_a_dry_run_reports_and_changes_nothing(run, simulation):
    simulation.fail()
    simulation.find("instance", "a")["tags"].append(f"{P}suspend:5")
    reported = run("--dry-run").out
    assert simulation.master.jobs == {}
    assert 'Would submit: [{"OP_ID": "OP_TEST_DELAY", "duration": 10.0},' in reported
    assert f"Would add to instance a: {P}pending:failover:" in reported
    assert f"Would remove from instance a: {P}suspend:5" in reported


def test_a_failed_repair_waits_for_a_human(run, simulation):
    simulation.fail()
    error = errors.OpExecError("no luck")
    simulation.master.results["OP_INSTANCE_FAILOVER"] = error
    run()
    assert counts(run().out) == {"Failure": "1", "Needs repair": "1"}
    assert ":failure:3" in simulation.tags()[0]
    assert len(simulation.submitted()) == 1
    run()
    assert len(simulation.submitted()) == 1


def test_a_repair_without_room_is_tried_again(run, simulation):
    simulation.fail()
    full = errors.OpPrereqError("all full", "insufficient_resources")
    simulation.master.results["OP_INSTANCE_FAILOVER"] = full
    run()
    assert counts(run().out) == {"Needs repair": "1", "Pending repair": "1"}
    (tag,) = simulation.tags()
    assert len(tag.rpartition(":")[2].split("+")) == 2
    simulation.master.results["OP_INSTANCE_FAILOVER"] = simulation.heal
    run()
    assert counts(run().out) == {"Healthy": "1", "Needs repair": "1"}


def test_suspensions_that_are_over_are_removed_everywhere(run, simulation):
    over = f"{P}suspend:1000"
    simulation.master.cluster["tags"].append(over)
    for kind, name in (("group", "default"), ("instance", "a")):
        simulation.find(kind, name)["tags"].append(over)
    run()
    assert over not in simulation.master.cluster["tags"]
    assert simulation.find("group", "default")["tags"] == simulation.tags() == []


def test_refusals_of_the_master_are_reported_and_tried_again(run, simulation):
    simulation.fail()
    simulation.master.refuse["OP_INSTANCE_FAILOVER"] = errors.JobQueueError("a filter")
    reported = run(status=1)
    assert "Error: a: the repair was not accepted: a filter" in reported.err
    assert counts(reported.out) == {"Needs repair": "1", "Pending repair": "1"}
    (before,) = simulation.tags()
    simulation.master.refuse.clear()
    run()
    (after,) = simulation.tags()
    assert after.startswith(before)
    assert simulation.submitted() == [["OP_TEST_DELAY", "OP_INSTANCE_FAILOVER"]]


def test_tags_that_people_have_to_correct_are_named(run, simulation):
    simulation.fail()
    damaged = f"{P}pending:failover:x"
    simulation.find("instance", "a")["tags"].append(damaged)
    simulation.master.cluster["tags"].append(f"{P}reinstal")
    reported = run()
    assert f"Warning: a: no repair: the tag {damaged} cannot be read" in reported.err
    assert "Warning: b: its node is offline, but repairs are not" in reported.err
    assert counts(reported.out) == {"Needs repair": "2"}
    assert simulation.master.jobs == {}


def test_two_runs_do_not_repair_at_the_same_time(run, simulation, monkeypatch):
    monkeypatch.setattr(harep, "_LOCK_WAIT_S", 0)
    simulation.fail()
    paths = pathutils.from_environ(os.environ)
    with autorepair.exclusive(paths, timeout_s=0):
        assert "repairs instances; try again" in run(status=1).err
        run("--dry-run")
    assert simulation.master.jobs == {}


@pytest.mark.parametrize("status", ["running", "success"])
def test_repairs_under_way_by_harep_3_0_go_on(run, simulation, status):
    """Its tags are the same; it sets them after the submission of the job."""
    simulation.fail()
    job = simulation.call(
        "SubmitJob", [[{"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": "a"}]]
    )
    if status == "running":
        simulation.find("instance", "a")["pnode"] = "n1"
        simulation.master.still[job] = status
    tag = f"{P}pending:failover:5b0c2f5e-6a0e-4d53-8f7e-1c1c6a9d1e10:1700001000:{job}"
    simulation.find("instance", "a")["tags"].append(tag)
    state = "Pending repair" if status == "running" else "Healthy"
    assert counts(run().out) == {state: "1", "Needs repair": "1"}
    (after,) = simulation.tags()
    assert (after == tag) == (status == "running")
    assert ("result:failover:5b0c2f5e" in after) == (status == "success")
    assert simulation.submitted() == [["OP_INSTANCE_FAILOVER"]]


def test_options_that_make_no_sense(run):
    assert "job delay" in run("--job-delay=-1", status=1).err
    assert "doesn't take any arguments" in run("argument", status=1).err
    run("--bogus", status=2)
