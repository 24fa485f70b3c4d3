"""``--dry-run --explain`` of any command: what it prints and when it refuses."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors

CREATE = "OP_INSTANCE_CREATE"
ADD = "gnt-instance add -t diskless -o tiny --no-nics --dry-run"


def reason(node, actual, role="primary"):
    return {
        "node": node,
        "role": role,
        "kind": "FailMem",
        "check": "free memory",
        "relation": "more than",
        "wanted": 4096,
        "found": actual,
        "unit": "MiB",
    }


def placement(*nodes):
    rows = [reason("n2.tst", 1024), reason("n3.tst", 1024), reason("n4.tst", 7)]
    return {
        "allocator": "hail",
        "success": bool(nodes),
        "info": "its own text",
        "instances": [{"instance": "a.tst", "nodes": list(nodes), "reasons": rows}],
    }


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.messages[CREATE] = ["a message", ("placement", placement("n1.tst"))]
    fake.results[CREATE] = ["n1.tst"]
    return fake


def test_nodes_and_reasons_are_printed(master):
    done = commands.run(f"{ADD} --explain a.tst", master)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "Tue Nov 14 22:13:21 2023 a message",
        "Instance a.tst: n1.tst",
        "Allocator hail: its own text",
        "  n2.tst, n3.tst: free memory: wanted more than 4096 MiB, found 1024 MiB",
        "  n4.tst: free memory: wanted more than 4096 MiB, found 7 MiB",
    ]


def test_json_is_one_document(master):
    done = commands.run(f"{ADD} --explain --json a.tst", master)
    assert done.code == 0
    assert json.loads(done.out) == {
        "instance": "a.tst",
        "nodes": ["n1.tst"],
        "allocators": [placement("n1.tst")],
    }
    assert "a message" in done.err


def test_reasons_of_a_failure_come_before_its_error(master):
    master.messages[CREATE] = [("placement", placement())]
    master.results[CREATE] = errors.OpPrereqError("all full", "insufficient_resources")
    done = commands.run(f"{ADD} --explain a.tst", master)
    assert done.code == 1
    assert done.out.startswith("Instance a.tst: no place\nAllocator hail: its own text")
    assert "all full" in done.err


def test_without_explain_the_data_is_not_printed(master):
    done = commands.run(f"{ADD} a.tst", master)
    assert done.out == "Tue Nov 14 22:13:21 2023 a message\n"


@pytest.mark.parametrize(
    "line",
    [
        "gnt-instance add -t diskless -o tiny --no-nics --explain a.tst",
        f"{ADD} --explain --submit a.tst",
    ],
)
def test_it_goes_with_a_dry_run_that_is_waited_for(master, line):
    done = commands.run(line, master)
    assert done.code == 1
    assert "--explain needs --dry-run" in done.err
    assert master.jobs == {}


MOVERS = [
    ("gnt-instance failover {} -I hail a.tst", "OP_INSTANCE_FAILOVER"),
    ("gnt-instance migrate {} -I hail a.tst", "OP_INSTANCE_MIGRATE"),
    ("gnt-instance change-group {} a.tst", "OP_INSTANCE_CHANGE_GROUP"),
    ("gnt-instance recreate-disks {} -I hail a.tst", "OP_INSTANCE_RECREATE_DISKS"),
]


@pytest.mark.parametrize(("line", "op_id"), MOVERS)
def test_commands_for_one_instance_print_its_nodes(master, line, op_id):
    master.messages[op_id] = [("placement", placement("n1.tst"))]
    master.results[op_id] = None
    done = commands.run(line.format("--dry-run --explain"), master)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "Instance a.tst: n1.tst",
        "Allocator hail: its own text",
        "  n2.tst, n3.tst: free memory: wanted more than 4096 MiB, found 1024 MiB",
        "  n4.tst: free memory: wanted more than 4096 MiB, found 7 MiB",
    ]
    ((operation,),) = master.jobs.values()
    assert (operation.op_id(), operation.dry_run) == (op_id, True)
    plain = commands.run(line.format("--explain"), master)
    assert plain.code == 1
    assert "--explain needs --dry-run" in plain.err


@pytest.mark.parametrize(
    ("line", "op_id"),
    [
        ("gnt-node evacuate {} -p n1.tst", "OP_NODE_EVACUATE"),
        ("gnt-group evacuate {} default", "OP_GROUP_EVACUATE"),
    ],
)
def test_commands_for_many_print_each(master, line, op_id):
    node = {"name": "n1.tst", "pinst_list": ["a.tst"], "sinst_list": []}
    master.objects["node"] = [node]
    master.messages[op_id] = [("placement", placement("n9.tst"))]
    master.results[op_id] = {"jobs": []}
    done = commands.run(line.format("--dry-run --explain"), master)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:3] == [
        "Allocator hail: its own text",
        "  Instance a.tst: n9.tst",
        "    n2.tst, n3.tst: free memory: wanted more than 4096 MiB, found 1024 MiB",
    ]
    actual = commands.run(line.format("--dry-run --explain --json"), master)
    assert json.loads(actual.out) == {"allocators": [placement("n9.tst")]}
    plain = commands.run(line.format("--dry-run"), master)
    assert plain.out.splitlines()[-1] == "Nothing was done."
