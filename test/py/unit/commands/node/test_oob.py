"""``gnt-node power`` and ``gnt-node health``: questions, refusals and tables."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster

NODES = ("node1", "node2", "node3", "node10")


@pytest.fixture
def master():
    """A cluster where node3 has no helper, and an instance runs on node2."""
    fake = FakeMaster()
    fake.objects["node"] = [
        {
            "name": name,
            "master": name == "node1",
            "powered": (3, None) if name == "node3" else True,
            "offline": False,
            "pinst_list": ["web", "old"] if name == "node2" else [],
            "ndp/oob_program": "!" if name == "node3" else "/sbin/oob",
        }
        for name in NODES
    ]
    fake.objects["instance"] = [
        {"name": "web", "status": "running"},
        {"name": "old", "status": "ADMIN_down"},
    ]
    fake.results["OP_OOB_COMMAND"] = lambda op: [
        [(0, name), (3, None) if name == "node3" else (0, answer(op.command))]
        for name in op.node_names
    ]
    return fake


def answer(command):
    return {
        "power-status": {"powered": True},
        "health": [["Fan 1", "OK"], ["PSU", "CRITICAL"]],
    }.get(command)


def asked(master):
    """Return command and nodes of each out-of-band job."""
    ops = [op for job in master.jobs.values() for op in job]
    return [(op.command, op.node_names) for op in ops if op.op_id() == "OP_OOB_COMMAND"]


def marked(master):
    """Return the nodes that are marked offline when they are proved to be off."""
    ops = [op for job in master.jobs.values() for op in job]
    return [name for op in ops if op.mark_offline for name in op.node_names]


def run(master, words, *answers):
    result = commands.run(f"gnt-node {words}", master, answers=list(answers) or None)
    result.out = "".join(f"{line.rstrip()}\n" for line in result.out.splitlines())
    return result


# Questions
@pytest.mark.parametrize("verb", ["status", "health"])
def test_without_names_all_nodes_with_a_helper_are_asked(master, verb):
    words = verb if verb == "health" else f"power {verb}"
    result = run(master, words)
    assert result.code == 0
    assert asked(master)[0][1] == ["node1", "node2", "node10"]
    assert "node3" not in result.out


def test_the_status_is_a_table(master):
    result = run(master, "power status node10 node2")
    assert (result.code, result.err) == (0, "")
    assert result.out == "Node   Status\nnode10 powered\nnode2  powered\n"


@pytest.mark.parametrize(
    ("payload", "word", "document"),
    [
        ({"powered": False}, "unpowered", {"powered": False}),
        ({"powered": None}, "unknown", {"powered": None}),
        ({"why": "no answer"}, "unknown", {"powered": None}),
    ],
)
def test_words_of_the_power_state(master, payload, word, document):
    master.results["OP_OOB_COMMAND"] = [[(0, "node2"), (0, payload)]]
    result = run(master, "power status node2")
    assert (result.code, result.out.splitlines()[1]) == (0, f"node2 {word}")
    result = run(master, "power --json status node2")
    assert json.loads(result.out) == [{"node": "node2", "status": document}]


def test_health_has_a_line_per_item(master):
    result = run(master, "health node2")
    assert result.out == "Node  Status\nnode2 Fan 1=OK\n      PSU=CRITICAL\n"
    master.results["OP_OOB_COMMAND"] = [[(0, "node2"), (0, [])]]
    assert run(master, "health node2").out == "Node  Status\nnode2\n"


def test_a_node_that_no_call_reaches_is_named_with_its_mend(master):
    for node in master.objects["node"][1:3]:
        node |= {"powered": False}
    master.objects["node"][2] |= {"offline": True, "powered": False}
    # Its memory is not known, as that of each node that is not asked.
    for node in master.objects["node"]:
        node["mfree"] = (4, None) if node["powered"] is False else 1
    for words in ("health", "list -o name,mfree"):
        result = run(master, words)
        assert "if it is off: gnt-node modify --offline=yes node2" in result.err
        assert "--offline=yes node3" not in result.err
    assert run(master, "list -o name").err == ""


@pytest.mark.parametrize("words", ["power status node2 node3", "health node2 node3"])
def test_a_node_without_a_helper_is_an_error(master, words):
    result = run(master, words)
    assert result.code == 1
    assert result.err == "Node node3 does not support OOB commands\n"
    assert "node3 (unavail)" in result.out


def test_a_controller_that_does_not_answer_is_named(master):
    master.results["OP_OOB_COMMAND"] = [
        [(0, "node1"), (0, {"powered": True})],
        [(0, "node2"), (2, None)],
    ]
    result = run(master, "power status")
    assert result.code == 1
    assert "node2 (nodata)" in result.out
    assert "node1 powered" in result.out


@pytest.mark.parametrize(
    ("words", "limit"),
    [("power status", 9), ("power --oob-timeout=25 status", 25), ("health", 60)],
)
def test_a_dead_controller_holds_up_the_status_for_9_seconds(master, words, limit):
    run(master, words)
    assert [op.timeout for job in master.jobs.values() for op in job] == [limit]


@pytest.mark.parametrize(
    "words", ["power status", "health", "power -f on", "power off"]
)
def test_a_cluster_without_helpers(master, words):
    for node in master.objects["node"]:
        node["powered"] = (3, None)
    result = run(master, words)
    assert "No node supports OOB commands" in result.err
    assert result.code == (0 if words in ("power status", "health") else 1)
    assert master.jobs == {}


# Switching
def test_all_nodes_are_switched_after_a_question_that_lists_them(master):
    question = (
        "Do you really want to power on the following nodes: node1, node2, node10?"
    )
    result = run(master, "power on", "n\n")
    assert (result.code, master.jobs) == (1, {})
    assert question in " ".join(result.terminal.split())
    assert run(master, "power on", "y\n").code == 0
    assert asked(master) == [("power-on", ["node1", "node2", "node10"])]


@pytest.mark.parametrize("verb", ["off", "cycle"])
def test_the_master_is_left_out_of_all_nodes(master, verb):
    result = run(master, f"power {verb}", "y\n", "y\n")
    assert result.code == 0
    question = f"Do you really want to power {verb} the following nodes: node2, node10?"
    assert question in " ".join(result.terminal.split())
    assert asked(master) == [(f"power-{verb}", ["node2", "node10"])]


@pytest.mark.parametrize("verb", ["off", "cycle"])
def test_all_machines_are_never_stopped_without_a_question(master, verb):
    result = run(master, f"power -f {verb}")
    assert (result.code, master.jobs) == (1, {})
    assert "please name the nodes" in result.err


@pytest.mark.parametrize("verb", ["off", "cycle"])
def test_running_instances_are_a_question_of_their_own(master, verb):
    result = run(master, f"power {verb} node2", "y\n", "n\n")
    assert (result.code, master.jobs) == (1, {})
    text = " ".join(result.terminal.split())
    assert f"The power {verb} will operate on 1 nodes. Do you want to continue?" in text
    assert "running there and lose their power: web. Do you want" in text
    assert run(master, f"power {verb} node2", "y\n", "y\n").code == 0
    assert asked(master) == [(f"power-{verb}", ["node2"])]


def test_nodes_without_running_instances_are_one_question(master):
    assert run(master, "power off node10", "y\n").code == 0
    assert (marked(master), asked(master)) == (["node10"], [("power-off", ["node10"])])


def test_force_asks_nothing(master):
    assert run(master, "power -f off node2").code == 0
    assert run(master, "power -f --ignore-status off node10").code == 0
    assert marked(master) == ["node2"]


def test_switching_on_named_nodes_asks_nothing(master):
    result = run(master, "power on node2")
    assert (result.code, result.out) == (0, "Node  Status\nnode2 invoked\n")


@pytest.mark.parametrize("verb", ["on", "off", "cycle"])
def test_nothing_is_done_if_one_node_has_no_helper(master, verb):
    result = run(master, f"power -f {verb} node2 node3")
    assert (result.code, master.jobs) == (1, {})
    assert "Node node3 does not support OOB commands" in result.err


@pytest.mark.parametrize("verb", ["off", "cycle"])
def test_the_master_is_never_stopped(master, verb):
    result = run(master, f"power -f {verb} node2 node1")
    assert (result.code, master.jobs) == (1, {})
    assert "node node1: is the master" in result.err
    assert f"run it by hand: /sbin/oob power-{verb} node1" in result.err
