"""verify-disks: activation, reports about nodes and volumes, and the exit code."""

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.results["OP_INSTANCE_ACTIVATE_DISKS"] = []
    return fake


def groups(fake, *results):
    """Let the verification submit one job per group, with these results."""
    jobs = []
    for number, group_result in enumerate(results):
        op = {"OP_ID": "OP_GROUP_VERIFY_DISKS", "group_name": f"g{number}"}
        fake.results["OP_GROUP_VERIFY_DISKS"] = group_result
        jobs.append([True, fake._SubmitJob([op])])
    fake.calls.clear()
    fake.results["OP_CLUSTER_VERIFY_DISKS"] = {"jobs": jobs}


def opcodes(fake):
    ops = [args[0][0] for method, args in fake.calls if method == "SubmitJob"]
    return [(op["OP_ID"], op.get("instance_name")) for op in ops]


def run(fake, line="gnt-cluster verify-disks"):
    done = commands.run(line, fake)
    lines = [
        text
        for text in done.out.splitlines()
        if not text.startswith(("Submitted jobs", "Waiting for job"))
    ]
    return done, lines


def test_nothing_to_do_is_a_success(master):
    groups(master, ({}, [], {}))
    done, lines = run(master, "gnt-cluster verify-disks -g default --no-strict")
    assert (done.code, lines) == (0, ["No disks need to be activated."])
    ((_, [[op]]), *_) = master.calls
    assert (op["group_name"], op["is_strict"]) == ("default", False)


def test_inactive_disks_are_activated_in_the_order_of_names(master):
    groups(master, ({}, ["web10", "web9"], {}))
    done, lines = run(master)
    assert done.code == 0
    assert lines == [f"Activating disks for instance '{n}'" for n in ("web9", "web10")]
    assert opcodes(master) == [
        ("OP_CLUSTER_VERIFY_DISKS", None),
        ("OP_INSTANCE_ACTIVATE_DISKS", "web9"),
        ("OP_INSTANCE_ACTIVATE_DISKS", "web10"),
    ]
    assert master.calls[0][1][0][0]["is_strict"] is True


def test_the_next_instance_is_activated_after_a_failure(master):
    groups(master, ({}, ["a", "b"], {}))
    problem = errors.OpExecError("no volume")
    master.results["OP_INSTANCE_ACTIVATE_DISKS"] = problem
    done, _ = run(master)
    assert done.code == 1
    assert [name for _, name in opcodes(master)] == [None, "a", "b"]
    for name in ("a", "b"):
        assert f"Error activating disks for instance {name}: " in done.err
    assert "no volume" in done.err


def test_without_the_master_no_other_instance_is_tried(master):
    groups(master, ({}, ["a", "b"], {}))
    master.refuse["OP_INSTANCE_ACTIVATE_DISKS"] = errors.NoMasterError("/socket")
    done, lines = run(master)
    assert done.code == 1
    assert lines == ["Activating disks for instance 'a'"]
    assert "Error activating" not in done.err


def test_the_end_of_the_text_of_a_broken_node_is_printed(master):
    text = "x" + "y" * 399 + "!"
    groups(master, ({"n2": text, "n1": "no answer"}, [], {}))
    done, lines = run(master)
    advice = "You need to fix these nodes first before fixing instances"
    assert done.code == 1
    assert lines == [
        "Error gathering data on node n1: no answer",
        advice,
        f"Error gathering data on node n2: {'y' * 399}!",
        advice,
        "No disks need to be activated.",
    ]


def test_missing_volumes_are_listed_with_the_nodes_that_are_broken(master):
    missing = {
        "web2": [["n1", "xenvg/a"], ["n2", "xenvg/b"]],
        "web1": [["n1", "xenvg/c"]],
    }
    groups(master, ({"n1": "down"}, [], missing))
    done, lines = run(master)
    assert done.code == 1
    assert lines[2:] == [
        "Instance web1 has missing logical volumes:",
        "\tbroken node n1 /dev/xenvg/c",
        "\tall of them are on broken nodes; fix these first",
        "Instance web2 has missing logical volumes:",
        "\tbroken node n1 /dev/xenvg/a",
        "\tn2 /dev/xenvg/b",
        (
            "You need to replace or recreate disks for all the above instances if this"
            " message persists after fixing broken nodes."
        ),
    ]


def test_missing_volumes_alone_are_a_failure(master):
    groups(master, ({}, [], {"web1": [["n1", "xenvg/c"]]}))
    done, lines = run(master)
    assert done.code == 1
    assert len(lines) == 3


def test_a_group_that_fails_does_not_hide_the_results_of_others(master):
    groups(master, errors.OpExecError("no quorum"), ({}, ["a"], {}))
    done, lines = run(master)
    assert done.code == 1
    assert lines == ["Activating disks for instance 'a'"]
