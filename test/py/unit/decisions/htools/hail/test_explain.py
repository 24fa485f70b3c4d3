"""Reasons of every mode: which nodes were refused, which were possible but worse."""

import json
import random

import pytest

from fakes import placement
from ganeti.decisions.htools.hail import answer
from ganeti.decisions.htools.rules import reasons

FOUR = {f"n{k}": placement.node() for k in range(1, 5)}
TWO_GROUPS = FOUR | {f"m{k}": placement.node("g-1") for k in range(1, 4)}


def solved(asked, there, nodes=FOUR, changes=(), groups=1, **options):
    """Solve a request about instances that are there, some nodes being changed."""
    live = {name: dict(values) for name, values in nodes.items()}
    for name, values in dict(changes).items():
        live[name] |= values
    data = placement.request(live, asked, there, groups)
    return answer.solve(data, answer.SolverOptions(**options))


def relocate(away):
    return {
        "type": "relocate",
        "name": "i",
        "required_nodes": 1,
        "relocate_from": [away],
    }


def evacuate(mode, *names):
    return {
        "type": "node-evacuate",
        "instances": list(names) or ["i"],
        "evac_mode": mode,
    }


def change(*groups):
    return {"type": "change-group", "instances": ["i"], "target_groups": groups}


def mirrored(**changes):
    return {"i": placement.instance(nodes=["n1", "n2"], **changes)}


def shared(**changes):
    return {"i": placement.instance("sharedfile", nodes=["n1"], **changes)}


FULL = {"free_memory": 200, "total_memory": 1224}
TIGHT = {"free_disk": 1000}
OFF = {"offline": True}


def reported(result):
    """Return node, role and check of all that speaks against nodes."""
    (one,) = result.explanation()
    return [(r.node, r.role, r.check) for r in one.reasons]


def test_a_relocation_reports_why_not_other_secondaries():
    result = solved(relocate("n2"), mirrored(), changes={"n4": TIGHT})
    (one,) = result.explanation()
    assert one.nodes == ("n1", "n3")
    assert reported(result) == [
        ("n2", "primary", "nodes"),
        ("n4", "secondary", "free disk"),
    ]
    refused = one.reasons[1]
    assert (refused.wanted, refused.actual, refused.unit) == (4224, 1000, "MiB")


def test_a_relocation_that_fails_gives_a_reason_per_node():
    changes = {"n2": FULL, "n3": OFF, "n4": FULL}
    result = solved(relocate("n1"), shared(), changes=changes)
    assert not result.answer["success"]
    assert reported(result) == [
        ("n2", "primary", "free memory"),
        ("n3", "primary", "state"),
        ("n4", "primary", "free memory"),
    ]


def test_possible_places_are_compared():
    loaded = shared() | {"j": placement.instance("sharedfile", nodes=["n3"])}
    result = solved(relocate("n1"), loaded)
    (one,) = result.explanation()
    assert one.nodes == ("n4",)
    assert [(r.node, r.kind) for r in one.choice] == [("n2", "Score"), ("n3", "Score")]
    assert one.choice[0].wanted <= one.choice[0].actual < one.choice[1].actual
    assert result.after.pri[0] == 3


def test_a_failover_is_refused_by_either_node():
    result = solved(evacuate("primary-only"), mirrored(), changes={"n2": FULL})
    assert reported(result) == [("n2", "primary", "free memory")]
    assert result.answer["result"][1][0][0] == "i"
    fine = solved(evacuate("primary-only"), mirrored())
    assert fine.explanation() == [reasons.Explanation("i", ("n2", "n1"), ())]


def test_migration_tags_are_reported():
    data = placement.request(FOUR, relocate("n1"), shared())
    data["cluster_tags"] = ["htools:migration:cpu"]
    for name in ("n1", "n3", "n4"):
        data["nodes"][name]["tags"] = ["cpu:old"]
    data["nodes"]["n2"]["tags"] = ["cpu:new"]
    result = answer.solve(data, answer.SolverOptions())
    (one,) = result.explanation()
    refused = [(r.node, r.kind, r.check) for r in one.reasons]
    assert ("n2", "FailMig", "migration from n1") in refused
    assert one.nodes
    assert not {r.node for r in one.reasons} & set(one.nodes)


def test_a_new_pair_reports_why_not_others():
    result = solved(evacuate("all"), mirrored(), changes={"n3": TIGHT, "n4": FULL})
    ((name, _text),) = result.answer["result"][1]
    assert name == "i"
    against = reported(result)
    assert ("n3", "primary", "free disk") in against
    assert ("n4", "primary", "free memory") in against


def test_a_way_that_is_barred_is_reported_though_both_nodes_would_do():
    # The one of them lacks the memory for failovers that the other needs.
    nodes = {name: FOUR[name] for name in ("n1", "n2", "n3")}
    result = solved(evacuate("all"), mirrored(), nodes)
    (one,) = result.explanation()
    assert one.nodes == ()
    assert [(r.node, r.check, r.actual) for r in one.reasons][-1] == (
        "n3",
        "steps of the move",
        "no node for the secondary",
    )


@pytest.mark.parametrize(
    ("template", "mode", "check"),
    [
        ("plain", "primary-only", "disk template"),
        ("sharedfile", "secondary-only", "disk template"),
    ],
)
def test_instances_that_never_move_say_so_once(template, mode, check):
    there = {"i": placement.instance(template, nodes=["n1"])}
    result = solved(evacuate(mode), there)
    assert reported(result) == [("n1", "primary", check)]


def test_another_group_reports_why_not_its_nodes():
    changes = {"m1": FULL, "m2": OFF}
    asked = (change(), shared(), TWO_GROUPS)
    result = solved(*asked, changes, 2, capacity_checks=False)
    (one,) = result.explanation()
    assert one.nodes == ("m3",)
    assert reported(result) == [
        ("m1", "primary", "free memory"),
        ("m2", "primary", "state"),
    ]
    none = solved(*asked, changes | {"m3": FULL}, 2)
    assert [row[0] for row in reported(none)] == ["m1", "m2", "m3"]
    assert none.answer["result"][1][0][0] == "i"


def test_no_other_group_is_a_reason():
    assert reported(solved(change(), shared())) == [("n1", "primary", "target groups")]


def test_a_worse_group_is_reported_with_its_policy_or_score():
    nodes = TWO_GROUPS | {k: placement.node("g-2") for k in ("k1", "k2")}
    data = placement.request(nodes, change(), shared(), 3)
    for policy, kind in (("preferred", "Score"), ("last_resort", "Policy")):
        data["nodegroups"]["g-2"]["alloc_policy"] = policy
        (one,) = answer.solve(data, answer.SolverOptions()).explanation()
        worse = [r for r in one.choice if r.node[0] != one.nodes[0][0]]
        assert [r.kind for r in worse] == [kind]
    data["request"] = placement.allocation("plain")
    (one,) = answer.solve(data, answer.SolverOptions()).explanation()
    worse = [r for r in one.choice if r.node.startswith("k")]
    assert {(r.kind, r.actual) for r in worse} == {("Policy", "last_resort")}


def test_a_second_copy_reports_why_not_elsewhere():
    there = {"i": placement.instance("plain", nodes=["n1"])}
    asked = {"type": "allocate-secondary", "name": "i"}
    result = solved(asked, there, changes={"n4": TIGHT})
    (one,) = result.explanation()
    assert one.nodes == ("n1", "n3")
    assert reported(result) == [("n4", "secondary", "free disk")]
    assert [(r.node, r.role) for r in one.choice] == [("n2", "secondary")]
    changes = dict.fromkeys(("n2", "n3", "n4"), TIGHT)
    none = solved(asked, there, changes=changes)
    assert not none.answer["success"]
    assert [row[0] for row in reported(none)] == ["n2", "n3", "n4"]


def test_several_instances_are_reported_with_the_state_of_their_turn():
    asked = {
        "type": "multi-allocate",
        "instances": [
            placement.allocation("plain", name, memory=10000) for name in "abcde"
        ],
    }
    result = solved(asked, {})
    every = result.explanation()
    assert [one.instance for one in every] == list("abcde")
    assert [len(one.reasons) for one in every] == [0, 1, 2, 4, 4]
    assert every[-1].nodes == ()


def test_capacity_reports_places_and_why_not_one_more():
    asked = {
        "type": "capacity",
        "disk_template": "plain",
        "required_nodes": 1,
        "sizes": [{"memory": 8000, "disk": 1024, "vcpus": 1, "spindles": 1}],
        "limit": None,
    }
    *placed, last = solved(asked, {}).explanation()
    assert len(placed) == 3
    assert (last.instance, last.nodes) == ("one more", ())
    assert {r.node for r in last.reasons} == set(FOUR)


def test_balancing_reports_improvements_and_instances_that_stay():
    there = {
        f"s{k}": placement.instance("sharedfile", nodes=["n1"], memory=2048)
        for k in range(4)
    }
    there["p"] = placement.instance("plain", nodes=["n1"])
    result = solved({"type": "balance", "max_moves": 5}, there)
    *moves, last = result.explanation()
    assert moves
    for move in moves:
        assert any(r.check == "free_mem_cv" for r in move.choice)
        assert all(r.actual < r.wanted for r in move.choice)
    assert (last.instance, last.nodes) == ("p", ("n1",))
    assert (last.reasons[0].check, last.reasons[0].actual) == ("disk template", "plain")


def some_move(seed):
    """Return a request that moves what is on a random cluster."""
    dice = random.Random(seed)
    data = placement.some_cluster(seed)
    for name in dice.sample(list(data["nodes"]), 2):
        data["nodes"][name] |= dice.choice([FULL, TIGHT, OFF, {}])
    names = list(data["instances"])
    mode = dice.choice(["primary-only", "secondary-only", "all"])
    data["request"] = evacuate(mode, *dice.sample(names, min(len(names), 5)))
    if not names:
        data["request"]["instances"] = []
    return data


@pytest.mark.parametrize("seed", range(60))
def test_who_stays_has_reasons_and_who_moves_has_none_against_its_target(seed):
    data = some_move(seed)
    result = answer.solve(data, answer.SolverOptions())
    moved, failed, _jobs = result.answer["result"]
    every = {one.instance: one for one in result.explanation()}
    assert list(every) == data["request"]["instances"]
    for name, _group, nodes in moved:
        one = every[name]
        assert list(one.nodes) == nodes
        place = 1 if data["request"]["evac_mode"] == "secondary-only" else 0
        assert nodes[place] not in {r.node for r in one.choice}
        role = ("primary", "secondary")[place]
        assert nodes[place] not in {r.node for r in one.reasons if r.role == role}
        for other in one.choice:
            assert other.actual >= other.wanted
    for name, _text in failed:
        assert every[name].nodes == ()
        assert every[name].reasons, data["request"]
    json.dumps([one.data() for one in every.values()])


@pytest.mark.parametrize("template", ["drbd", "plain", "sharedfile"])
@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_held_against_the_nodes_of_a_new_instance(seed, template):
    data = placement.some_cluster(seed)
    dice = random.Random(seed)
    for name in dice.sample(list(data["nodes"]), 2):
        data["nodes"][name] |= dice.choice([FULL, TIGHT, {}])
    data["request"] = placement.allocation(template, "new")
    result = answer.solve(data, answer.SolverOptions())
    (one,) = result.explanation()
    assert not {row.node for row in (*one.reasons, *one.choice)} & set(one.nodes)
