"""``--plan``: nothing is submitted, and people can read what would be done."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti import opcodes
from ganeti.cli import plans
from ganeti.cli.plans import Painter

_NODE1, _NODE2 = "00000000-0000-4000-8000-000000000001", "uuid-of-node2"
PLAN = {
    "op_id": "OP_INSTANCE_MIGRATE",
    "summary": "INSTANCE_MIGRATE(web1)",
    "locks": [
        {"level": "cluster", "names": ["BGL"], "shared": True, "created": []},
        {"level": "instance", "names": ["web1"], "shared": False, "created": ["web1"]},
        {"level": "node", "names": None, "shared": False, "created": []},
    ],
    "steps": [
        {"kind": "log", "text": "Migrating\x1b[2J"},
        {
            "kind": "call",
            "procedure": "instance_migrate",
            "nodes": ["node1"],
            "arguments": {"instance": "web1", "live": "yes"},
        },
        {"kind": "pause", "seconds": 2.5},
        {"kind": "file", "text": "/var/lib/ganeti/known_hosts"},
    ],
    "changes": [
        {
            "table": "instances",
            "uuid": "uuid-of-web1",
            "name": "web1",
            "action": "change",
            "fields": [
                {"name": "primary_node", "before": _NODE1, "after": _NODE2},
                {"name": "tags", "before": [], "after": ["a"]},
            ],
        },
        {
            "table": "nodegroups",
            "uuid": "uuid-of-rack",
            "name": "rack",
            "action": "add",
            "fields": [
                {"name": "alloc_policy", "before": None, "after": "preferred"},
                {"name": "tags", "before": None, "after": []},
            ],
        },
        {
            "table": "disks",
            "uuid": "uuid-of-disk",
            "name": "",
            "action": "remove",
            "fields": [{"name": "size", "before": 5, "after": None}],
        },
    ],
    "jobs": [[{"OP_ID": "OP_GROUP_ADD", "group_name": "rack", "priority": 0}]],
    "names": {_NODE1: "node1", _NODE2: "node2"},
    "generated": ["aa:00:00:00:00:01"],
    "error": None,
}
TEXT = """\
Plan of INSTANCE_MIGRATE(web1) at revision 7
Locks
  cluster    BGL (shared)
  instance   web1 (new: web1)
  node       all
Steps
  1. say: Migrating\\x1b[2J
  2. call instance_migrate(instance=web1, live=yes) on node1
  3. wait 2.5 s
  4. write file /var/lib/ganeti/known_hosts
Configuration
  ~ instance web1
      primary_node: node1 -> node2
      tags: [] -> [a]
  + group rack
      alloc_policy: preferred
  - disk uuid-of-disk
Jobs
  1. OP_GROUP_ADD(group_name=rack)
The run makes up values of its own instead of these:
  aa:00:00:00:00:01
"""


def whole(ops, followers=(), left_out=0):
    return {
        "revision": 7,
        "opcodes": ops,
        "followers": list(followers),
        "left_out": left_out,
    }


class PlanningMaster(FakeMaster):
    """Answers every opcode with the same plan, but for its error."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error
        self.planned = []

    def _PlanJob(self, ops):
        self.planned.append([opcodes.decode(op) for op in ops])
        return whole([{**PLAN, "error": self.error} for _ in ops])


def test_a_plan_is_printed_and_nothing_is_submitted():
    master = PlanningMaster()
    result = commands.run("gnt-instance migrate --plan -f web1", master)
    assert (result.code, result.out, result.err) == (0, TEXT, "")
    assert master.jobs == {}
    ((op,),) = master.planned
    assert op.op_id() == "OP_INSTANCE_MIGRATE"


def test_a_plan_is_one_json_document():
    result = commands.run(
        "gnt-instance migrate --plan --json -f web1", PlanningMaster()
    )
    assert json.loads(result.out) == {"jobs": [whole([PLAN])]}


def test_json_without_plan_is_refused():
    master = PlanningMaster()
    result = commands.run("gnt-group add --json rack", master)
    assert result.code == 1
    assert "--json goes with --plan" in result.err
    assert master.jobs == {}


def test_nobody_is_asked_before_a_plan():
    master = PlanningMaster()
    master.objects["instance"] = [{"name": "web1", "uuid": "u"}]
    result = commands.run("gnt-instance remove --plan web1", master, answers=["n\n"])
    assert (result.code, result.terminal) == (0, "")
    assert len(master.planned) == 1


def test_an_error_of_the_plan_is_that_of_the_command():
    master = PlanningMaster(["OpPrereqError", ["no such instance", "unknown_entity"]])
    result = commands.run("gnt-instance migrate --plan -f web1", master)
    assert result.code == 1
    assert "It would fail: " in result.out
    assert "no such instance" in result.out


def test_several_jobs_are_planned_each_on_its_own():
    master = PlanningMaster()
    names = ["web1", "web2"]
    master.objects["instance"] = [{"name": n, "uuid": f"u-{n}"} for n in names]
    result = commands.run("gnt-instance shutdown --plan web1 web2", master)
    assert result.code == 0
    assert [len(ops) for ops in master.planned] == [1, 1]
    assert result.out.count("Plan of") == 2
    assert master.jobs == {}


def test_plans_are_coloured_where_wanted():
    plain = list(plans.lines(whole([PLAN]), _painter(False)))
    coloured = list(plans.lines(whole([PLAN]), _painter(True)))
    assert "\n".join(plain) + "\n" == TEXT
    assert "  \033[32m+ group rack\033[0m" in coloured
    assert "  \033[31m- disk uuid-of-disk\033[0m" in coloured


def test_submitted_jobs_are_shown_after_the_one_that_submits_them():
    follower = PLAN | {"summary": "GROUP_ADD(rack)", "error": ["OpExecError", ["no"]]}
    text = list(plans.lines(whole([PLAN], [[follower]], 3), _painter(False)))
    assert "Then job 1: GROUP_ADD(rack)" in text
    assert text.index("Then job 1: GROUP_ADD(rack)") > text.index("Jobs")
    assert text[-1] == "3 more jobs would follow."


def _painter(is_coloured):
    return Painter(is_coloured=is_coloured)


#: Commands with jobs for which there is no plan, and why.
WITHOUT = {
    "acts outside of its jobs": {
        "gnt-cluster destroy",
        "gnt-cluster init",
        "gnt-cluster renew-crypto",
        "gnt-debug test-jobqueue",
        "gnt-node add",
    },
    "decides by the result of its first job": {"gnt-cluster verify-disks"},
    "changes nothing": {
        "gnt-cluster search-tags",
        "gnt-cluster verify",
        "gnt-debug iallocator",
        "gnt-debug test-osparams",
        "gnt-instance info",
        "gnt-node health",
        "gnt-node list-storage",
        "gnt-node volumes",
        "gnt-os diagnose",
        "gnt-os info",
        "gnt-os list",
    },
}


@pytest.mark.parametrize(
    "name", ["cluster", "debug", "group", "instance", "node", "os", "backup", "network"]
)
def test_every_command_that_changes_something_by_jobs_can_plan(name):
    try:
        program = commands.program(f"gnt-{name}")
    except ModuleNotFoundError:
        return
    without = set().union(*WITHOUT.values())
    for command in program.offered():
        label = f"{program.name} {command.name}"
        can_plan = any(option.dest == "plan" for option in command.options)
        assert can_plan == (bool(command.opcodes) and label not in without), label
