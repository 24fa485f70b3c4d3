"""Exit codes of commands whose work is not done, or not all of it."""

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors


@pytest.fixture
def master():
    made = FakeMaster()
    made.objects["node"] = [
        {"name": "n1.tst", "pinst_list": ["w1"], "sinst_list": []},
        {"name": "n2.tst", "pinst_list": ["w2"], "sinst_list": ["w1"]},
    ]
    return made


def test_a_status_that_no_job_has_is_an_error(master):
    done = commands.run("gnt-job cancel --pending -f", master)
    assert (done.code, done.out) == (1, "No jobs have this status\n")


def test_a_failover_that_fails_is_an_error(master):
    refusal = errors.OpPrereqError("no room", "insufficient_resources")
    master.results["OP_INSTANCE_FAILOVER"] = refusal
    done = commands.run("gnt-node failover -f n1.tst", master)
    assert done.code == 1
    assert "1 error(s) out of 1 instance(s)" in done.out


def test_a_node_with_instances_of_one_kind_is_evacuated_without_a_mode(master):
    master.results["OP_NODE_EVACUATE"] = {"jobs": []}
    commands.run("gnt-node evacuate -f n1.tst", master)
    ((op,),) = master.jobs.values()
    assert op.mode == "primary-only"


def test_a_node_with_both_kinds_is_refused_before_the_question(master):
    done = commands.run("gnt-node evacuate n2.tst", master)
    assert done.code == 1
    assert "--primary-only and one with --secondary-only" in done.err.replace("\n", " ")
    assert "y/[n]" not in done.out
    assert not master.jobs


def test_a_new_secondary_selects_secondary_instances_whatever_else_was_asked(master):
    master.results["OP_NODE_EVACUATE"] = {"jobs": []}
    done = commands.run("gnt-node evacuate -f -p -n n1.tst n2.tst", master)
    ((op,),) = master.jobs.values()
    assert (op.mode, op.remote_node) == ("secondary-only", "n1.tst")
    assert "hence evacuating secondary instances only." in done.err
    assert done.code == 0
    done = commands.run("gnt-node evacuate -f -p -s n2.tst", master)
    assert done.code == 1


def test_a_new_secondary_leaves_an_allocator_without_effect(master):
    master.results["OP_NODE_EVACUATE"] = {"jobs": []}
    done = commands.run("gnt-node evacuate -f -n n1.tst -I hail n2.tst", master)
    ((op,),) = master.jobs.values()
    assert (op.remote_node, op.iallocator) == ("n1.tst", None)
    assert done.code == 0
    assert done.err == (
        "New secondary node given (disabling iallocator), hence evacuating secondary"
        " instances only.\n"
    )


def test_a_node_without_instances_does_not_stop_the_others(master):
    master.results["OP_NODE_EVACUATE"] = {"jobs": []}
    done = commands.run("gnt-node evacuate -f -s n1.tst n2.tst", master)
    assert [op.node_name for (op,) in master.jobs.values()] == ["n2.tst"]
    assert "No instances to evacuate on node(s) n1.tst." in done.err
    assert done.out.endswith("All instances evacuated successfully.\n")
    assert done.code == 0
    commands.run("gnt-node evacuate -f -p n2.tst n1.tst n2.tst", master)
    assert [op.node_name for (op,) in master.jobs.values()][1:] == ["n2.tst", "n1.tst"]


def test_one_question_names_all_nodes(master):
    done = commands.run("gnt-node evacuate -p n1.tst n2.tst", master, answers=["n\n"])
    assert "n1.tst (mode primary-only), n2.tst (mode primary-only)?" in " ".join(
        done.terminal.split()
    )
    assert done.code == 13
    assert not master.jobs
