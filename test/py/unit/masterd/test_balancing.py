"""Checks of the arguments of balancing, before anything is planned."""

import json
import re
import types

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti import errors
from ganeti.constants import ecodes
from ganeti.masterd import balancing


def deps(submitted):
    """Return the part of a master that the method needs."""
    snapshot = clusters.snapshot()
    planning = types.SimpleNamespace(submit=lambda *args: submitted.append(args))
    config = types.SimpleNamespace(snapshot=lambda: snapshot)
    return types.SimpleNamespace(config=config, planning=planning)


def test_a_group_is_known_by_its_uuid_too() -> None:
    submitted = []
    wanted = balancing.BalanceRequest(group=clusters.GROUP, allocator="mine")
    balancing.plan_balance(deps(submitted), wanted)
    ((_make, _deps, request),) = submitted
    assert (request.group, request.allocator) == ("default", "mine")


def test_an_unknown_group_is_refused_at_once() -> None:
    submitted = []
    with pytest.raises(errors.OpPrereqError, match="'nowhere'") as caught:
        balancing.plan_balance(
            deps(submitted), balancing.BalanceRequest(group="nowhere")
        )
    assert caught.value.args[1] == ecodes.ECODE_NOENT
    assert submitted == []


@pytest.mark.parametrize(
    ("allocator", "moves", "answer"),
    [("", 1, "'' and 1"), ("mine", -1, "'mine' and -1")],
)
def test_a_request_that_no_allocator_takes_is_refused(allocator, moves, answer) -> None:
    submitted = []
    request = balancing.BalanceRequest(allocator=allocator, max_moves=moves)
    balancing.plan_balance(deps(submitted), request)
    ((make, *arguments),) = submitted
    with pytest.raises(errors.OpPrereqError, match=re.escape(f"found {answer}")):
        make(*arguments)


def ask(result, max_moves):
    """Return the plan that an allocator's result becomes."""
    answer = {"success": True, "info": "done", "result": result}
    snapshot = clusters.snapshot(instances=1)
    script = {
        "iallocator_runner": json.dumps(answer),
        "node_info": ["boot", [], [{"memory_free": 1}]],
        "all_instances_info": {},
    }
    plans = []
    master = types.SimpleNamespace(
        config=types.SimpleNamespace(snapshot=lambda: snapshot),
        rpc=FakeRunner(lambda: snapshot, script),
        planning=types.SimpleNamespace(
            submit=lambda make, *args: plans.append(make(*args))
        ),
    )
    request = balancing.BalanceRequest(
        allocator="mine", max_moves=max_moves, explain=True
    )
    balancing.plan_balance(master, request)
    ((group,),) = (plan["groups"] for plan in plans)
    return group


def test_the_plan_of_an_allocator_becomes_moves_one_after_the_other() -> None:
    moved = ["inst1.example.com", "default", ["node2.example.com"]]
    jobs = [
        [{"OP_ID": f"OP_INSTANCE_{word}", "instance_name": "inst1.example.com"}]
        for word in ("MIGRATE", "FAILOVER")
    ]
    group = ask([[moved], [], jobs], max_moves=2)
    first, second = group["moves"]
    assert (group["name"], group["stopped"]) == ("all", "done")
    assert group["score_before"] is group["score_after"] is group["score_ideal"] is None
    assert first["from"] == ["node1.example.com"]
    assert (first["to"], second["to"]) == (["node2.example.com"], [])
    assert (first["how"], first["depends"]) == ("OP_INSTANCE_MIGRATE", [])
    assert second["depends"] == [0]


def test_a_plan_may_have_no_moves() -> None:
    assert ask([[], [], []], max_moves=0)["moves"] == []
