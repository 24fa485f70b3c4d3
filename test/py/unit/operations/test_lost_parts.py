"""Files and processes that running guests lack, in the details of instances."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure

NODE1, NODE2 = clusters.node_uuid(1), clusters.node_uuid(2)
RUNS = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}
PARTS = ({"tpm": True}, {"shared_directories": "data=/srv/data"}, {}, {"tpm": True})


def engine(lost):
    """Return four guests, the last one stopped, on two nodes, and their names."""
    guests = [
        clusters.instance(
            number, primary=number % 2 + 1, hypervisor="kvm", hvparams=hvp
        )
        for number, hvp in enumerate(PARTS, 1)
    ]
    names = [guest.name for guest in guests]
    script = {
        **SUCCESSFUL_ACTS,
        "all_instances_info": dict.fromkeys(names[:3], RUNS),
        "blockdev_find": None,
        "node_verify": lost,
    }
    return Engine(clusters.snapshot(instances=0, extra=guests), script), names


def info(eng, **fields):
    return eng.run({"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [], **fields})


def test_what_a_node_has_lost_is_named_with_the_command():
    def lost(_node, args):
        (names,) = args[0].values()
        return {
            "guest-files": {name: ["shares", "tpm", "tpm-process"] for name in names}
        }

    eng, (first, second, third, fourth) = engine(lost)
    answer = info(eng)
    assert {node: args[0] for node, args in eng.rpc.called("node_verify")} == {
        NODE1: {"guest-files": [second]},
        NODE2: {"guest-files": [first, third]},
    }
    shares, file, process = answer[first]["problems"]
    assert shares == {
        "state": "shares",
        "text": "node node2.example.com does not run a process of its shared"
        " directories any more, so the guest has lost a directory",
        "command": f"gnt-instance reboot {first}",
    }
    assert (file["state"], file["command"]) == ("tpm", None)
    assert process["command"] == f"gnt-instance reboot {first}"
    assert len(answer[second]["problems"]) == len(answer[third]["problems"]) == 3
    assert "problems" not in answer[fourth]


@pytest.mark.parametrize(
    "answer",
    [
        failure(),
        {},
        {"guest-files": 7},
        {"guest-files": {"inst1.example.com": ["\x1b[2J"], "other": ["tpm"]}},
    ],
)
def test_a_node_that_says_nothing_of_use_names_none(answer):
    eng, names = engine(answer)
    known = info(eng)
    assert all("problems" not in known[name] for name in names)


def test_a_guest_that_is_stuck_is_a_problem():
    first, third = "inst1.example.com", "inst3.example.com"
    eng, _names = engine({"guest-files": {first: ["tpm", "stuck"], third: ["stuck"]}})
    known = info(eng)
    assert [each["state"] for each in known[first]["problems"]] == ["stuck", "tpm"]
    (stuck,) = known[third]["problems"]
    assert "since its live migration, only busy processors" in stuck["text"]
    assert stuck["command"] is None


def test_static_details_ask_no_node():
    eng, _names = engine({})
    info(eng, static=True)
    assert not eng.rpc.called("node_verify")
