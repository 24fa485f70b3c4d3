"""``harep`` against a fake master: what it asks, submits, tags and prints."""

import re
import sys

import pytest

from fakes.luxi_master import Connection
from ganeti import errors
from ganeti.client.htools import harep, sources
from ganeti.repair import tags

P = tags.PREFIX


class Simulation(Connection):
    """A master whose tag jobs do what they say, and whose repairs heal."""

    def __init__(self):
        super().__init__()
        self.master.cluster = {"tags": [f"{P}failover"], "default_iallocator": "best,b"}
        self.master.objects = {
            "group": [{"uuid": "g", "name": "default", "tags": []}],
            "node": [
                {"name": n, "offline": False, "drained": False, "group.uuid": "g"}
                for n in ("n1", "n2")
            ],
            "instance": [self.made("a", "sharedfile"), self.made("b", "plain")],
        }
        self.master.results["OP_TAGS_SET"] = self._set
        self.master.results["OP_TAGS_DEL"] = self._del
        self.master.results["OP_INSTANCE_FAILOVER"] = self._heal

    @staticmethod
    def made(name, template):
        return {
            "name": name,
            "pnode": "n1",
            "snodes": [],
            "tags": [],
            "disk_template": template,
            "admin_state": "up",
            "forthcoming": False,
        }

    def tags(self, name="a"):
        return self.find("instance", name)["tags"]

    def find(self, kind, name):
        return next(o for o in self.master.objects[kind] if o["name"] == name)

    def fail(self, node="n1"):
        self.find("node", node)["offline"] = True

    def _owner(self, op):
        if op.kind == "cluster":
            return self.master.cluster
        kind = {"nodegroup": "group"}.get(op.kind, op.kind)
        return self.find(kind, op.name)

    def _set(self, op):
        self._owner(op)["tags"] += op.tags

    def _del(self, op):
        owner = self._owner(op)
        owner["tags"] = [tag for tag in owner["tags"] if tag not in op.tags]

    def _heal(self, op):
        self.find("instance", op.instance_name)["pnode"] = "n2"

    def submitted(self):
        """Give the opcodes of every job, tags left out."""
        rows = [[op.op_id() for op in job] for job in self.master.jobs.values()]
        return [row for row in rows if not row[0].startswith("OP_TAGS")]


@pytest.fixture
def simulation(monkeypatch):
    made = Simulation()
    monkeypatch.setattr(sources, "connect", lambda _path, **_options: made)
    return made


@pytest.fixture
def run(monkeypatch, capsys, simulation):
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
    assert re.fullmatch(rf"{P}pending:failover:[0-9a-f-]{{36}}:\d+:1", tag)
    (refused,) = simulation.tags("b")
    assert ":enoperm:" in refused
    second = run()
    assert counts(second.out) == {"Healthy": "1", "Needs repair": "1"}
    assert 'Moving a from "Pending repair" to "Healthy"' in second.out
    (tag,) = simulation.tags()
    assert ":success:1" in tag
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
    (move,) = [op for op in simulation.master.jobs[1] if "FAILOVER" in op.op_id()]
    assert move.iallocator == "."


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
    assert ":failure:1" in simulation.tags()[0]
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
    simulation.master.results["OP_INSTANCE_FAILOVER"] = simulation._heal
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


def test_refusals_of_the_master_are_reported(run, simulation):
    simulation.fail()
    simulation.master.refuse["OP_INSTANCE_FAILOVER"] = errors.JobQueueError(
        "is drained"
    )
    reported = run(status=1)
    assert "Error: a: the repair was not accepted: " in reported.err
    assert counts(reported.out) == {"Needs repair": "2"}
    assert simulation.tags() == []


def test_options_that_make_no_sense(run):
    assert "job delay" in run("--job-delay=-1", status=1).err
    assert "doesn't take any arguments" in run("argument", status=1).err
    run("--bogus", status=2)
