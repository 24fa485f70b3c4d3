"""One step of balancing: which planned moves become jobs."""

import pytest

from ganeti.decisions.repair import balancing
from ganeti.decisions.repair.balancing import Bounds
from ganeti.decisions.repair.duties import Duties
from ganeti.decisions.repair.journal import Decision
from ganeti.decisions.repair.limits import Automation, Freeze

NAMES = frozenset(f"node{n}" for n in range(1, 7))
ON = Duties(balance=True)


def move(number, score):
    nodes = [f"node{2 * number - 1}", f"node{2 * number}"]
    return {
        "instance": f"web{number}",
        "from": nodes,
        "to": nodes[::-1],
        "opcodes": [{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": f"web{number}"}],
        "score": score,
        "depends": [],
    }


def step(moves, *, free=NAMES, stopped="", duties=ON, **automation):
    group = {"name": "g", "score_before": 3.0, "moves": moves, "stopped": stopped}
    bounds = Bounds(Automation(**automation), free, 100.0, "r1")
    return balancing.decide(balancing.read({"groups": [group]}), duties, bounds)


def decisions(result):
    return [(item.name, item.decision.value) for item in result.items]


def test_all_moves_that_may_be_made_become_jobs_with_their_reasons():
    result = step([move(1, 2.0), move(2, 1.0)])
    assert decisions(result) == [("web1", "chosen"), ("web2", "chosen")]
    assert [item.jobs for item in result.items] == [(0,), (0,)]
    assert all(item.moves for item in result.items)
    assert [job.incident for job in result.jobs] == ["", ""]
    (op,) = result.jobs[0].ops
    first, second = op["reason"]
    assert first[:2] == ["gnt:daemon:maintd", "Balancing group g: moving web1"]
    assert second[:2] == ["gnt:journal", "round r1"]
    assert result.items[0].reason == "score of group g: 3.0000 -> 2.0000"


def test_a_silent_node_is_named_and_a_plan_without_moves_is_not_final():
    group = {"name": "g", "score_before": 3.0, "moves": [], "stopped": "balanced"}
    plan = {"groups": [group], "silent": ["node5"]}
    bounds = Bounds(Automation(), NAMES, 100.0, "r1")
    result = balancing.decide(balancing.read(plan), ON, bounds)
    assert decisions(result) == [("node5", "refused"), ("g", "refused")]
    assert not result.is_vain
    assert step([], stopped="balanced").is_vain


def test_a_move_to_a_node_that_is_not_free_waits():
    result = step([move(1, 2.0), move(2, 1.0)], free=NAMES - {"node4"})
    assert decisions(result) == [("web1", "chosen"), ("web2", "waiting")]
    assert len(result.jobs) == 1


def test_no_node_is_used_twice():
    result = step([move(1, 2.0), move(1, 1.0)])
    assert decisions(result) == [("web1", "chosen"), ("web1", "waiting")]


def test_moves_over_the_share_wait_and_are_no_mass_event():
    result = step(
        [move(1, 2.0), move(2, 1.0)], limits={"moved-share": 10.0}, instances=10
    )
    assert decisions(result) == [("web1", "chosen"), ("web2", "waiting")]
    assert result.items[1].limit == "moved-share"
    assert result.items[1].decision is not Decision.REFUSED


@pytest.mark.parametrize(
    ("automation", "limit"),
    [
        ({"freeze": Freeze("audit", 1.0)}, "frozen"),
        ({"limits": {"quiet-time": 60.0}, "mass_event": 90.0}, "quiet-time"),
    ],
)
def test_freeze_and_quiet_time_refuse_every_move(automation, limit):
    result = step([move(1, 2.0)], **automation)
    assert decisions(result) == [("web1", "refused")]
    assert result.items[0].limit == limit
    assert not result.jobs


def test_a_group_without_moves_says_why():
    result = step([], stopped="the score cannot get lower")
    assert decisions(result) == [("g", "refused")]
    assert result.items[0].reason == "the score cannot get lower"
    assert result.is_vain


def test_with_load_the_reason_of_a_group_has_no_figures():
    duties = Duties(balance=True, balance_load=True)
    result = step([], stopped="the best gains 0.0123", duties=duties)
    assert result.items[0].reason == "no move gains 0.1"
