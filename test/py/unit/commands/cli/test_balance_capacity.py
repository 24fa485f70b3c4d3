"""``gnt-cluster balance`` and ``capacity``: what is asked, submitted and shown."""

import json
import pathlib

import pytest

from fakes import commands
from fakes.commands import run
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.decisions.htools.balance import plan as balance_plan
from ganeti.decisions.htools.model import text

KITE = pathlib.Path(__file__).parents[4] / "data" / "htools" / "kite.data"


@pytest.fixture
def master():
    cluster = text.load(KITE.read_text(), "kite")
    asked = []

    def plan(wanted):
        asked.append(wanted)
        plans = balance_plan.plan(cluster, balance_plan.PlanOptions())
        return balance_plan.data(plans, explain=wanted.get("explain", False))

    made = FakeMaster()
    made._PlanBalance = plan
    made.asked = asked
    return made


def test_the_plan_is_shown_and_nothing_is_done(master):
    actual = run("gnt-cluster balance --plan", master)
    assert actual.code == 0
    assert actual.out.splitlines() == [
        "Group rackA: score 6.83249605 -> 2.34837006 with 2 moves",
        (
            "    1. owl1.lab.test kite1.lab.test:kite2.lab.test =>"
            " kite4.lab.test:kite2.lab.test  3.99139958  f r:kite4.lab.test f"
        ),
        (
            "    2. owl2.lab.test kite1.lab.test:kite2.lab.test =>"
            " kite2.lab.test:kite4.lab.test  2.34837006  f r:kite4.lab.test"
        ),
    ]
    assert master.jobs == {}
    assert run("gnt-cluster balance", master).out == actual.out


def test_options_reach_the_master(master):
    line = (
        "gnt-cluster balance -g rackA --max-moves=3 --min-gain=0.5 --evac-mode"
        " --no-disk-moves --restricted-migration --search"
    )
    run(line, master)
    assert master.asked == [
        {
            "group": "rackA",
            "max_moves": 3,
            "min_gain": 0.5,
            "min_gain_limit": 0.1,
            "evacuate": True,
            "disk_moves": False,
            "restricted": True,
            "ignore_soft_errors": False,
            "search": True,
            "explain": False,
        }
    ]


def test_reasons_follow_the_moves(master):
    out = run("gnt-cluster balance --explain", master).out
    assert "         cpu_load_cv 1.50000000 -> " in out
    assert "  No more: no move lowers the score; the best one is of owl" in out
    assert "  owl5.lab.test stays: its disks (plain) are on one node" in out


def test_one_document_for_programs(master):
    actual = json.loads(run("gnt-cluster balance --json", master).out)
    assert [move["instance"] for move in actual["groups"][0]["moves"]] == [
        "owl1.lab.test",
        "owl2.lab.test",
    ]


def test_applied_moves_are_jobs_that_wait_for_each_other(master):
    actual = run("gnt-cluster balance --apply --yes --priority=low", master)
    assert actual.code == 0
    assert "All instances moved successfully." in actual.out
    first, second = master.jobs.values()
    assert [op.op_id() for op in first] == [
        "OP_INSTANCE_MIGRATE",
        "OP_INSTANCE_REPLACE_DISKS",
        "OP_INSTANCE_MIGRATE",
    ]
    assert next(op.op_id() for op in second) == "OP_INSTANCE_MIGRATE"
    assert not first[0].depends
    assert [list(each) for each in second[0].depends] == [[-1, ["success"]]]
    assert first[0].priority == 10


def test_a_failed_move_is_the_commands_failure(master):
    master.results["OP_INSTANCE_MIGRATE"] = errors.OpExecError("no way")
    actual = run("gnt-cluster balance --apply --yes", master)
    assert actual.code == 1
    assert "There were 2 errors while balancing." in actual.out


def test_without_consent_nothing_is_done(master):
    assert run("gnt-cluster balance --apply", master, answers=["n\n"]).code == 13
    assert master.jobs == {}
    assert " 13  declined" in run("gnt-cluster balance --help", master).out


@pytest.mark.parametrize("number", ["nan", "inf", "1e999"])
def test_only_numbers_that_json_has_are_accepted(master, number):
    actual = run(f"gnt-cluster balance --min-gain={number}", master)
    assert actual.code == 2
    assert f"--min-gain: wanted a finite number, found '{number}'" in actual.err
    assert master.asked == []


@pytest.mark.parametrize("other", ["--plan", "--json"])
def test_doing_and_only_showing_exclude_each_other(master, other):
    actual = run(f"gnt-cluster balance --apply {other}", master)
    assert actual.code == 1
    assert "--apply excludes --plan and --json" in actual.err
    assert master.jobs == {}


# ``gnt-cluster capacity``: what is asked and how the answer reads.

SIZE = {"memory": 512, "disk": 1024, "vcpus": 1, "spindles": 1}
REASON = {
    "role": "primary",
    "kind": "FailMem",
    "check": "free memory",
    "relation": "more than",
    "wanted": 512.0,
    "found": 200.0,
    "unit": "MiB",
}
RESULT = {
    "disk_template": "drbd",
    "tiered": True,
    "groups": ["rack"],
    "sizes": [SIZE],
    "count": 3,
    "instances": [
        {"name": "new-0", "nodes": ["a", "b"], **SIZE},
        {"name": "new-1", "nodes": ["b", "a"], **SIZE},
        {"name": "new-2", "nodes": ["b", "a"], **SIZE, "memory": 256},
    ],
    "stopped": {
        "why": "full",
        "size": SIZE,
        "failures": {"FailMem": 2, "FailN1": 1},
        "reasons": [{"node": "a", **REASON}, {"node": "b", **REASON}],
    },
}
SHORT = """\
3 more instances fit in rack, with disk template drbd:
     2 of 512 MiB memory, 1024 MiB disk, 1 vcpus
     1 of 256 MiB memory, 1024 MiB disk, 1 vcpus
The next instance is refused for memory (2), room for failovers (1)
"""
LONG = """\
new-0: a, b
new-1: b, a
new-2: b, a
The next instance is refused for memory (2), room for failovers (1)
  a, b: free memory: wanted more than 512 MiB, found 200 MiB
"""


class Master(FakeMaster):
    """Answers with the same capacity, and keeps what it was asked."""

    def __init__(self, **changes):
        super().__init__()
        self.answer = RESULT | changes
        self.asked = None

    def _QueryCapacity(self, wanted):
        self.asked = wanted
        return self.answer


def test_counts_are_printed() -> None:
    master = Master()
    line = "gnt-cluster capacity -t drbd --memory 1g --vcpus 2 --tiered -g rack -l 7"
    actual = commands.run(line, master)
    assert (actual.code, actual.out, actual.err) == (0, SHORT, "")
    assert master.asked == {
        "disk_template": "drbd",
        "memory": 1024,
        "disk": None,
        "vcpus": 2,
        "tiered": True,
        "groups": ["rack"],
        "limit": 7,
        "allocator": None,
    }


def test_places_and_reasons_are_explained() -> None:
    actual = commands.run("gnt-cluster capacity --explain", Master())
    assert actual.out.endswith(LONG)


def test_nothing_fits() -> None:
    stopped = {"why": "unsafe", "failures": {"FailN1": 1}, "size": SIZE, "reasons": []}
    master = Master(count=0, instances=[], groups=None, stopped=stopped)
    actual = commands.run("gnt-cluster capacity", master)
    assert actual.code == 0
    first, second, why = actual.out.splitlines()
    assert first == "0 more instances fit, with disk template drbd:"
    assert second == "     0 of 512 MiB memory, 1024 MiB disk, 1 vcpus"
    assert why.startswith(
        "Nodes already lack capacity for failovers, so no instance is placed"
    )


def test_a_document_has_reasons_when_asked_for() -> None:
    actual = commands.run("gnt-cluster capacity --json --explain", Master())
    assert json.loads(actual.out) == RESULT
    actual = commands.run("gnt-cluster capacity --json", Master())
    assert "stopped" not in json.loads(actual.out)
