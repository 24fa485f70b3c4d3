"""``--plan``: nothing is submitted, and people can read what would be done."""

import json
from types import SimpleNamespace

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.commands.cli.waiting import jobs, plans
from ganeti.commands.cli.waiting.plans import Painter
from ganeti.model import opcodes

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
  1. log: Migrating\\x1b[2J
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
Generated values; a real run generates different ones:
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
    assert "--json needs --plan" in result.err
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
    assert "The operation would fail: " in result.out
    assert "no such instance" in result.out


#: Commands that submit in each way: one job, jobs that follow it, one job per object.
LINES = (
    "gnt-cluster activate-master-ip --plan",
    "gnt-cluster deactivate-master-ip --yes --plan",
    "gnt-cluster modify --plan --candidate-pool-size=3",
    "gnt-cluster redist-conf --plan",
    "gnt-cluster rename --plan -f other.example.com",
    "gnt-cluster repair-disk-sizes --plan",
    "gnt-debug delay --plan 0",
    "gnt-group add --plan rack",
    "gnt-group evacuate --plan rack",
    "gnt-group modify --plan --alloc-policy=preferred rack",
    "gnt-group rename --plan rack rack2",
    "gnt-instance activate-disks --plan web1",
    "gnt-instance add-tags --plan web1 tag",
    "gnt-instance change-group --plan web1",
    "gnt-instance migrate --plan --submit -f web1",
    "gnt-instance modify --plan -B maxmem=1024 web1",
    "gnt-instance recreate-disks --plan --explain --dry-run web1",
    "gnt-instance rename --plan web1 web2",
    "gnt-instance shutdown --plan web1",
    "gnt-node evacuate --plan -f -s node1",
    "gnt-node failover --plan -f node1",
    "gnt-node migrate --plan -f node1",
    "gnt-node modify --plan --drained=yes node1",
    "gnt-node power --plan --force on node1",
    "gnt-node powercycle --plan -f node1",
    "gnt-node remove --plan node1",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("fails", [False, True])
def test_a_planned_command_ends_with_the_code_of_its_plan(line, fails):
    error = ["OpPrereqError", ["no such thing", "unknown_entity"]]
    master = PlanningMaster(error if fails else None)
    master.values["cluster_name"] = "kites.example.com"
    master.objects["instance"] = [{"name": "web1", "uuid": "u1"}]
    master.objects["node"] = [
        {
            "name": "node1",
            "pinst_list": ["web1"],
            "sinst_list": ["web1"],
            "role": "R",
            "powered": True,
            "master": False,
        }
    ]
    result = commands.run(line, master)
    assert (result.code, result.err) == (int(fails), "")
    assert len(master.planned) == 1
    assert "Plan of" in result.out
    assert master.jobs == {}


def test_a_command_that_forgot_to_plan_does_not_submit():
    ctx = SimpleNamespace(
        word="do",
        command=SimpleNamespace(options=()),
        option=lambda name: name == "plan",
    )
    with pytest.raises(errors.ProgrammerError):
        jobs.submit(ctx, [jobs.op("OP_TEST_DELAY", duration=1.0)])


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


def test_a_terminal_gets_no_colour_as_text():
    master = PlanningMaster()
    master.objects["instance"] = [{"name": "web1", "uuid": "u-web1"}]
    terminal = commands.run("gnt-instance shutdown --plan web1", master, tty=True)
    assert "  \033[32m+ group rack\033[0m\n" in terminal.out
    assert "\\x1b[32m" not in terminal.out
    assert "\\033" not in terminal.out
    # The text of the plan is data, and stays escaped.
    assert "\033[2J" not in terminal.out
    piped = commands.run("gnt-instance shutdown --plan web1", master)
    assert "\033[" not in piped.out


def test_submitted_jobs_are_shown_after_the_one_that_submits_them():
    follower = PLAN | {"summary": "GROUP_ADD(rack)", "error": ["OpExecError", ["no"]]}
    text = list(plans.lines(whole([PLAN], [[follower]], 3), _painter(False)))
    assert "Then job 1: GROUP_ADD(rack)" in text
    assert text.index("Then job 1: GROUP_ADD(rack)") > text.index("Jobs")
    assert text[-1] == "3 more jobs would be submitted."


def _painter(is_coloured):
    return Painter(is_coloured=is_coloured)


#: Commands without a plan, and why.
WITHOUT = {
    "tests a daemon, and is no operation": {"gnt-debug test-jobqueue"},
    "one call that is done at once": {
        "gnt-cluster freeze",
        "gnt-cluster maintd-cancel",
        "gnt-cluster queue",
        "gnt-cluster remove-repair",
        "gnt-cluster sessions",
        "gnt-cluster thaw",
        "gnt-cluster watcher",
        "gnt-debug submit-job",
        "gnt-filter add",
        "gnt-filter delete",
        "gnt-filter replace",
        "gnt-job archive",
        "gnt-job autoarchive",
        "gnt-job cancel",
        "gnt-job change-priority",
    },
    "runs any command on nodes": {"gnt-cluster command", "gnt-cluster copyfile"},
    "changes nothing": {
        "gnt-cluster audit",
        "gnt-cluster backup-store",
        "gnt-cluster capacity",
        "gnt-cluster getmaster",
        "gnt-cluster info",
        "gnt-cluster journal",
        "gnt-cluster list-incidents",
        "gnt-cluster list-tags",
        "gnt-cluster lost-changes",
        "gnt-cluster master-ping",
        "gnt-cluster monitor",
        "gnt-cluster search-tags",
        "gnt-cluster search",
        "gnt-cluster status",
        "gnt-cluster show-ispecs-cmd",
        "gnt-cluster simulate",
        "gnt-cluster verify",
        "gnt-cluster version",
        "gnt-debug locks",
        "gnt-debug iallocator",
        "gnt-debug test-osparams",
        "gnt-filter info",
        "gnt-filter list",
        "gnt-filter list-fields",
        "gnt-group info",
        "gnt-group list",
        "gnt-group list-fields",
        "gnt-group list-tags",
        "gnt-group show-ispecs-cmd",
        "gnt-instance console",
        "gnt-instance vnc",
        "gnt-instance info",
        "gnt-instance list",
        "gnt-instance list-fields",
        "gnt-instance list-tags",
        "gnt-job info",
        "gnt-job list",
        "gnt-job list-fields",
        "gnt-job wait",
        "gnt-job watch",
        "gnt-network info",
        "gnt-network list",
        "gnt-network list-fields",
        "gnt-network list-tags",
        "gnt-node health",
        "gnt-node info",
        "gnt-node list",
        "gnt-node list-drbd",
        "gnt-node list-fields",
        "gnt-node list-storage",
        "gnt-node list-tags",
        "gnt-node volumes",
        "gnt-os diagnose",
        "gnt-os info",
        "gnt-os list",
        "gnt-storage diagnose",
        "gnt-storage info",
    },
}


PROGRAMS = (
    *("cluster", "debug", "filter", "group", "instance", "job", "network", "node"),
    "storage",
    "os",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_command_that_changes_something_can_plan(name):
    program = commands.program(f"gnt-{name}")
    without = set().union(*WITHOUT.values())
    for command in program.offered():
        label = f"{program.name} {command.name}"
        can_plan = any(option.dest == "plan" for option in command.options)
        assert can_plan == (label not in without), label


def test_disks_are_verified_for_real_and_their_activation_is_planned():
    master = PlanningMaster()
    master.results["OP_CLUSTER_VERIFY_DISKS"] = {"jobs": []}
    result = commands.run("gnt-cluster verify-disks --plan", master)
    assert (result.code, result.out) == (0, "No disks need to be activated.\n")
    result = commands.run("gnt-cluster verify-disks --plan --json", master)
    assert (result.code, json.loads(result.out)) == (0, {"jobs": []})
    assert master.planned == []


def test_what_a_command_does_beside_its_jobs_is_shown(tmp_path):
    master = PlanningMaster()
    result = commands.run("gnt-cluster destroy --plan", master)
    assert result.code == 0
    assert [op.op_id() for (op,) in master.planned] == ["OP_CLUSTER_DESTROY"]
    first, _, last = result.out.partition("\nSteps of this command after its jobs\n")
    assert first.startswith("Plan of ")
    assert "1. stop the master daemons\n" in last
    assert master.jobs == {}
    result = commands.run("gnt-cluster destroy --plan --json", master)
    assert set(json.loads(result.out)) == {"jobs", "after"}


@pytest.mark.parametrize(
    "line",
    [
        "gnt-cluster destroy --json --yes-do-it",
        "gnt-cluster init --json cluster",
        "gnt-node add --json node9",
    ],
)
def test_json_without_plan_is_refused_before_anything_is_done(line):
    master = PlanningMaster()
    master.values["modify_ssh_setup"] = True
    result = commands.run(line, master)
    assert (result.code, result.out) == (1, "")
    assert "--json needs --plan" in result.err
    assert master.jobs == {}
