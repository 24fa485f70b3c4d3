"""Balancing plans of whole clusters, and their jobs."""

import pathlib

import msgspec
import pytest

from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.balance import greedy as balance_greedy
from ganeti.decisions.htools.balance import plan
from ganeti.decisions.htools.hail import answer
from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.model import opcodes

DATA = pathlib.Path(__file__).parents[5] / "data" / "htools"


def load(name):
    return text.load((DATA / name).read_text(), name)


def test_the_plan_is_that_of_hbal():
    (group,) = plan.plan(load("kite.data"), plan.PlanOptions())
    assert [(m.instance, m.letters) for m in group.moves] == [
        ("owl1.lab.test", "f r:kite4.lab.test f"),
        ("owl2.lab.test", "f r:kite4.lab.test"),
    ]
    assert group.moves[0].before == ("kite1.lab.test", "kite2.lab.test")
    assert group.moves[1].after == ("kite2.lab.test", "kite4.lab.test")
    assert round(group.before, 8) == 6.83249605
    assert round(group.after, 8) == round(group.moves[-1].score, 8) == 2.34837006


def test_why_no_more_and_why_not_others():
    (group,) = plan.plan(load("kite.data"), plan.PlanOptions())
    assert group.kept == {"owl5.lab.test": "its disks (plain) are on one node"}
    assert group.stopped.startswith("no move lowers the score; the best one is of owl")
    limited = plan.PlanOptions(goal=balance_greedy.BalanceGoal(max_length=1))
    (group,) = plan.plan(load("kite.data"), limited)
    assert (len(group.moves), group.stopped) == (1, "the number of moves is limited")


def test_moves_of_one_node_wait_for_each_other_and_others_do_not():
    (group,) = plan.plan(load("kite.data"), plan.PlanOptions())
    assert [move.depends for move in group.moves] == [(), (0,)]
    for seed in range(3):
        (group,) = plan.plan(random_cluster(seed), plan.PlanOptions())
        for place, move in enumerate(group.moves):
            mine = {*move.before, *move.after}
            waits = set(move.depends)
            while more := {d for w in waits for d in group.moves[w].depends} - waits:
                waits |= more
            sharing = {
                earlier
                for earlier, other in enumerate(group.moves[:place])
                if mine & {*other.before, *other.after}
            }
            assert sharing <= waits
            assert set(move.depends) <= sharing


def test_the_limit_counts_over_all_groups():
    cluster = random_cluster(1)
    other = msgspec.structs.replace(cluster.groups[0], name="other", uuid="other")
    count, total = len(cluster.nodes), len(cluster.instances)
    double = msgspec.structs.replace(
        cluster,
        groups=(cluster.groups[0], other),
        nodes=(
            *cluster.nodes,
            *(
                msgspec.structs.replace(n, name=f"x{n.name}", group=1)
                for n in cluster.nodes
            ),
        ),
        instances=(
            *cluster.instances,
            *(
                msgspec.structs.replace(
                    i,
                    name=f"x{i.name}",
                    primary=i.primary + count,
                    secondary=i.secondary + count,
                )
                for i in cluster.instances
            ),
        ),
    )
    assert len(double.instances) == 2 * total
    every = plan.plan(double, plan.PlanOptions())
    lengths = [len(group.moves) for group in every]
    assert lengths[0] == lengths[1] > 1
    most = lengths[0] + 1
    some = plan.plan(
        double, plan.PlanOptions(goal=balance_greedy.BalanceGoal(max_length=most))
    )
    assert [len(group.moves) for group in some] == [lengths[0], 1]
    (second,) = plan.plan(double, plan.PlanOptions(group="other"))
    assert len(second.moves) == lengths[1]
    reported = plan.data(every, explain=False)
    first = reported["groups"][1]["moves"]
    assert all(d >= lengths[0] for move in first for d in move["depends"])


@pytest.mark.parametrize("template", ["drbd", "sharedfile"])
def test_its_opcodes_are_opcodes(template):
    (group,) = plan.plan(random_cluster(3, template=template), plan.PlanOptions())
    assert group.moves
    for move in group.moves:
        for op in move.opcodes:
            assert opcodes.decode(op).instance_name == move.instance


def test_a_forthcoming_instance_fails_over():
    cluster = random_cluster(3)
    cluster = msgspec.structs.replace(
        cluster,
        instances=tuple(
            msgspec.structs.replace(i, forthcoming=True) for i in cluster.instances
        ),
    )
    plans = plan.plan(
        cluster, plan.PlanOptions(goal=balance_greedy.BalanceGoal(min_gain=0))
    )
    words = {op["OP_ID"] for move in plans[0].moves for op in move.opcodes}
    assert "OP_INSTANCE_MIGRATE" not in words


def test_instances_in_two_groups_stay():
    cluster = load("groups.data")
    split = msgspec.structs.replace(cluster.instances[1], secondary=3)
    cluster = msgspec.structs.replace(
        cluster,
        instances=(cluster.instances[0], split, *cluster.instances[2:]),
    )
    plans = plan.plan(cluster, plan.PlanOptions())
    name = split.name
    assert plans[0].kept[name] == "its nodes are in different groups"
    assert all(move.instance != name for group in plans for move in group.moves)


def test_evacuation_leaves_the_healthy_alone():
    cluster = load("groups.data")
    want = plan.PlanOptions(options=MoveOptions(evacuate=True))
    plans = plan.plan(cluster, want)
    assert plans[1].moves == []
    assert set(plans[1].kept.values()) == {"none of its nodes is offline"}


def test_an_unknown_group_is_reported():
    with pytest.raises(DataError, match="node group 'nope': wanted one that exists"):
        plan.plan(load("kite.data"), plan.PlanOptions(group="nope"))


def test_reasons_are_given_when_asked_for():
    plans = plan.plan(load("kite.data"), plan.PlanOptions())
    (plain,) = plan.data(plans, explain=False)["groups"]
    (full,) = plan.data(plans, explain=True)["groups"]
    assert "stopped" not in plain
    assert "components" not in plain["moves"][0]
    before, after = full["moves"][0]["components"]["cpu_load_cv"]
    assert before > after
    assert full["kept"] == plans[0].kept


def ask(cluster, **request):
    asked = {"request": {"type": "balance", "max_moves": 10} | request}
    return answer.solve(asked, answer.SolverOptions(), cluster=cluster)


def test_an_allocator_is_asked_for_moves():
    actual = ask(load("kite.data"))
    moved, failed, jobs = actual.answer["result"]
    assert actual.answer["success"]
    assert actual.answer["info"] == (
        "Request successful: 2 moves, scores: rackA 6.83249605 -> 2.34837006"
    )
    assert moved == [
        ["owl1.lab.test", "rackA", ["kite4.lab.test", "kite2.lab.test"]],
        ["owl2.lab.test", "rackA", ["kite2.lab.test", "kite4.lab.test"]],
    ]
    assert (failed, [len(ops) for ops in jobs]) == ([], [3, 2])
    assert [int(node) for node in actual.after.pri[:2]] == [3, 1]


def test_a_search_goes_on_where_no_single_move_helps():
    cluster = load("stuck.data")
    want = plan.PlanOptions(goal=balance_greedy.BalanceGoal(pairs=True))
    (greedy,) = plan.plan(cluster, plan.PlanOptions())
    (actual,) = plan.plan(cluster, want)
    assert actual.after < greedy.after
    assert actual.stopped.startswith("no move and no pair of moves lowers the score")
    asked = {"max_moves": len(actual.moves)}
    searched = ask(cluster, search=True, **asked).answer
    assert searched["info"].endswith(f"-> {actual.after:.8f}")
    assert ask(cluster, **asked).answer["info"].endswith(f"-> {greedy.after:.8f}")


def test_an_allocator_makes_no_more_moves_than_asked_for():
    moved, _failed, jobs = ask(load("kite.data"), max_moves=1).answer["result"]
    assert (len(moved), len(jobs)) == (1, 1)
    assert ask(load("kite.data"), max_moves=0).answer["result"] == [[], [], []]


@pytest.mark.parametrize(
    ("request_", "reported"),
    [
        ({"max_moves": -1}, "request.max_moves: wanted a number from 0"),
        ({"max_moves": "all"}, "request.max_moves: wanted a number"),
        ({"group_name": "nope"}, "node group 'nope'"),
        ({"evacuate": 1}, "request.evacuate: wanted true or false"),
    ],
)
def test_a_malformed_request_is_reported(request_, reported):
    with pytest.raises(DataError, match=reported):
        ask(load("kite.data"), **request_)


def test_a_first_set_uses_no_node_twice():
    whole = plan.plan(random_cluster(2), plan.PlanOptions())[0]
    (group,) = plan.plan(random_cluster(2), plan.PlanOptions(first_set=True))
    count = len(group.moves)
    assert 0 < count < len(whole.moves)
    assert group.moves == whole.moves[:count]
    assert group.stopped == "the next move uses a node of an earlier one"
    assert group.after == group.moves[-1].score
    used = [node for move in group.moves for node in {*move.before, *move.after}]
    assert len(used) == len(set(used))
    following = whole.moves[count]
    assert {*following.before, *following.after} & set(used)


def test_a_plan_uses_no_other_nodes_than_it_may():
    cluster = random_cluster(2)
    names = frozenset(node.name for node in cluster.nodes[::2])
    (group,) = plan.plan(cluster, plan.PlanOptions(nodes=names))
    assert group.moves
    assert {n for m in group.moves for n in (*m.before, *m.after)} <= names
    others = {
        item.name
        for item in cluster.instances
        if cluster.nodes[item.primary].name not in names
    }
    assert others <= group.kept.keys()
    assert "one of its nodes must not be used" in group.kept.values()


def test_a_fixed_instance_stays():
    (group,) = plan.plan(random_cluster(2), plan.PlanOptions())
    name = group.moves[0].instance
    fixed = plan.PlanOptions(fixed=frozenset({name}))
    (group,) = plan.plan(random_cluster(2), fixed)
    assert name not in {move.instance for move in group.moves}
    assert group.kept[name] == "it was moved a short time ago"


def test_a_guest_that_cannot_migrate_stays_and_the_plan_says_why():
    cluster = random_cluster(2)
    (group,) = plan.plan(cluster, plan.PlanOptions())
    name = group.moves[0].instance
    items = tuple(
        msgspec.structs.replace(i, movable=False, migrates=False)
        if i.name == name
        else i
        for i in cluster.instances
    )
    cluster = msgspec.structs.replace(cluster, instances=items)
    (group,) = plan.plan(cluster, plan.PlanOptions())
    assert name not in {move.instance for move in group.moves}
    assert "cannot migrate live" in group.kept[name]
