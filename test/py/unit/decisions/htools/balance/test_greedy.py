"""Balancing plans: what they promise, how they are found, how they are printed."""

import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys

import msgspec
import pytest

from fakes import made_clusters, peers
from fakes.made_clusters import Shape
from fakes.some_cluster import every_move, random_cluster
from ganeti.commands.htools import hbal
from ganeti.decisions.htools.balance import greedy as balance_greedy
from ganeti.decisions.htools.balance import search
from ganeti.decisions.htools.model import simulate, text
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state

DATA = pathlib.Path(__file__).parents[5] / "data" / "htools"
KITE = (DATA / "kite.data").read_text()


def slow_plan(now, goal, rounds):
    """The plan as described: every legal move is scored, the first best one is made."""
    current, lowest = components.value(now), components.ideal(now)
    for _ in range(rounds):
        best = None
        for index, move in every_move(now):
            if moves.failure(now, index, move):
                continue
            (actual,) = search.exact_after(now, [(index, move)])
            if best is None or actual < best[2]:
                best = (index, move, actual)
        small = best and current <= goal.min_gain_limit
        if best is None or best[2] >= current:
            return
        if small and current - best[2] < goal.min_gain:
            return
        moves.apply(now, best[0], best[1])
        current = best[2]
        yield best
        if current <= lowest + goal.min_score:
            return


CASES = [
    pytest.param({}, id="drbd"),
    pytest.param({"template": "sharedfile"}, id="shared"),
    pytest.param({"offline": 1}, id="offline"),
    pytest.param({"tags": True}, id="tags"),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_quick_search_finds_what_trying_everything_finds(seed, case):
    cluster = random_cluster(seed, **case)
    goal = balance_greedy.BalanceGoal(max_length=4)
    quick = balance_greedy.plan(node_state.derive(cluster), goal, MoveOptions())
    actual = [(step.inst, step.move, step.score) for step in quick]
    assert actual == list(slow_plan(node_state.derive(cluster), goal, 4))
    assert actual


@pytest.mark.parametrize("case", CASES)
def test_steps_keep_what_they_promise(case):
    cluster = random_cluster(3, **case)
    now, check = node_state.derive(cluster), node_state.derive(cluster)
    last = components.value(check)
    for step in balance_greedy.plan(now, balance_greedy.BalanceGoal(), MoveOptions()):
        assert not moves.failure(check, step.inst, step.move)
        failing = int((check.fails_n1 & check.online).sum())
        moves.apply(check, step.inst, step.move)
        assert int((check.fails_n1 & check.online).sum()) <= failing
        assert components.value(check) == step.score < last
        last = step.score
    again = components.value(node_state.derive(now.as_cluster().only_group(0)))
    assert again == pytest.approx(last, rel=0.2)


def test_names_of_nodes_change_only_names():
    cluster = random_cluster(4)
    nodes = tuple(
        msgspec.structs.replace(node, name=f"z{9 - k}.other")
        for k, node in enumerate(cluster.nodes)
    )
    renamed = msgspec.structs.replace(cluster, nodes=nodes)
    plans = [
        list(
            balance_greedy.plan(
                node_state.derive(one), balance_greedy.BalanceGoal(), MoveOptions()
            )
        )
        for one in (cluster, renamed)
    ]
    assert plans[0] == plans[1] != []


@pytest.mark.parametrize("template", ["drbd", "sharedfile"])
def test_many_scores_at_once_have_the_digits_of_single_ones(template):
    made = made_clusters.make(Shape(30, template=template, mixed=True, odd=True), 1)
    now = node_state.derive(text.load(made.text(), "made"))
    listed = list(every_move(now))[::97]
    for (index, move), actual in zip(
        listed, search.exact_after(now, listed), strict=True
    ):
        with moves.trial(now, index, move.target):
            moves.apply(now, index, move)
            assert components.value(now) == actual


def test_trials_leave_no_trace():
    now = node_state.derive(random_cluster(5, tags=True))
    before = now.copy()
    for index, move in every_move(now):
        moves.failure(now, index, move)
        with moves.trial(now, index, move.target):
            moves.apply(now, index, move)
    for name in ("rows", "peers", "pri_tags"):
        assert (getattr(now, name) == getattr(before, name)).all()
    for name in ("pri", "sec", "primaries", "secondaries"):
        assert getattr(now, name) == getattr(before, name)


def test_text_form_is_written_as_read():
    assert text.dump(text.load(KITE, "kite")) == KITE


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("|16384|512|6656", "|many|512|6656", ("line 3", "total memory", "many")),
        (
            "running|Y|kite1.lab.test|kite2",
            "flying|Y|kite1.lab.test|kite2",
            ("status", "flying"),
        ),
        (
            "kite1.lab.test|kite3.lab.test",
            "kite1.lab.test|kite1.lab.test",
            ("line 10", "secondary node"),
        ),
        (
            "kite1.lab.test|kite3.lab.test",
            "kite9.lab.test|kite3.lab.test",
            ("primary node", "kite9"),
        ),
        ("|preferred|", "|sometimes|", ("line 1", "allocation policy", "sometimes")),
        ("|4.0|32.0", "|x|32.0", ("vcpu ratio", "'x'")),
        ("\n\n", "\n", ("sections",)),
    ],
)
def test_bad_text_is_reported_by_file_line_and_field(old, new, words):
    with pytest.raises(DataError) as actual:
        text.load(KITE.replace(old, new, -1 if "\n" in old else 1), "some.data")
    for word in ("some.data", *words):
        assert word in str(actual.value)


def test_simulated_clusters_count_groups_from_the_last():
    cluster = simulate.load(["p,2,1t,4g,8", "u,1,1GB,1g,2,4,True"])
    names = [node.name for node in cluster.nodes]
    assert names == ["node-01-001", "node-02-001", "node-02-002"]
    assert cluster.nodes[0].exclusive
    assert cluster.nodes[0].total_disk == 953
    assert cluster.nodes[1].free_disk == 1048576
    with pytest.raises(DataError, match="field 'memory'"):
        simulate.load(["p,2,1t,lots,8"])


def run_hbal(monkeypatch, *words):
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["hbal", *words])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = hbal.main()
    return code, out.getvalue(), err.getvalue()


def test_output_for_people_and_programs(monkeypatch):
    code, out, err = run_hbal(monkeypatch, "-t", str(DATA / "kite.data"), "-C")
    assert (code, err) == (0, "")
    assert out == (DATA / "kite.out").read_text()


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (["--bogus"], 2, "unrecognized option"),
        ([], 1, "No backend selected"),
        (["-t", "/does/not/exist"], 1, "/does/not/exist"),
        (["-g", "abc"], 1, "cannot parse string 'abc'"),
        (["-t", str(DATA / "kite.data"), "word"], 1, "doesn't take any arguments"),
        (["-t", str(DATA / "kite.data"), "-O", "kite9"], 1, "kite9"),
        (
            ["-t", str(DATA / "kite.data"), "--select-inst", "owl9"],
            1,
            'Unknown instance(s): ["owl9"]',
        ),
    ],
)
def test_mistakes_are_reported(monkeypatch, words, code, reported):
    actual, _out, err = run_hbal(monkeypatch, *words)
    assert actual == code
    assert reported in err
    assert "Traceback" not in err


@pytest.mark.parametrize("case", CASES)
def test_plans_are_those_of_release_3_0(monkeypatch, tmp_path, case):
    peers.require()
    path = tmp_path / "cluster.data"
    path.write_text(text.dump(random_cluster(6, **case)))
    words = ["-t", str(path), "-C"]
    theirs = subprocess.run(
        [peers.program("hbal"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    _code, ours, _err = run_hbal(monkeypatch, *words)
    assert ours == theirs.stdout


def test_disks_are_copied_only_when_that_gains_enough():
    letters = {}
    for factor in (None, 1.0, 1.2, 1e9):
        now = node_state.derive(text.load(KITE, "kite"))
        goal = balance_greedy.BalanceGoal(avoid_disk_moves=factor)
        steps = list(balance_greedy.plan(now, goal, MoveOptions()))
        kinds = {step.move.kind for step in steps}
        letters[factor] = [(step.inst, step.move) for step in steps]
        copies = kinds - {MoveKind.FAILOVER, MoveKind.FAILOVER_TO}
        if factor == 1e9:
            # Once no migration gains anything, disks may be copied.
            assert letters[factor][0][1].kind == MoveKind.FAILOVER
        assert copies
        scores = [step.score for step in steps]
        assert scores == sorted(scores, reverse=True)
    assert letters[None] == letters[1.0]
    assert letters[1e9] != letters[None]


def with_pairs(cluster, **limits):
    now = node_state.derive(cluster)
    return list(
        balance_greedy.plan(
            now, balance_greedy.BalanceGoal(pairs=True, **limits), MoveOptions()
        )
    )


@pytest.mark.parametrize(
    ("seed", "case"), [(2, {}), (11, {}), (2, {"template": "sharedfile"})]
)
def test_pairs_go_on_where_single_moves_are_stuck(seed, case):
    cluster = random_cluster(seed, **case)
    now = node_state.derive(cluster)
    greedy = list(balance_greedy.plan(now, balance_greedy.BalanceGoal(), MoveOptions()))
    assert search.MoveSearch(now, MoveOptions()).best()[2] >= greedy[-1].score
    length = len(greedy) + 2
    actual = with_pairs(cluster, max_length=length)
    assert actual[: len(greedy)] == greedy
    assert actual[-1].score < greedy[-1].score
    assert with_pairs(cluster, max_length=length) == actual


def test_the_second_of_a_pair_is_the_best_there_is():
    cluster = random_cluster(11)
    now = node_state.derive(cluster)
    last, costly = components.value(now), 0
    before_pair = None
    for step in with_pairs(cluster):
        legal = [
            (index, move)
            for index, move in every_move(now)
            if not moves.failure(now, index, move)
        ]
        assert (step.inst, step.move) in legal
        if step.score < last:
            assert step.score == min(search.exact_after(now, legal))
            assert before_pair is None or step.score < before_pair
            before_pair = None
        else:
            assert before_pair is None
            before_pair, costly = last, costly + 1
        moves.apply(now, step.inst, step.move)
        last = step.score
    assert costly
    assert before_pair is None


def test_pairs_fit_into_the_number_of_moves():
    cluster = random_cluster(11)
    greedy = len(
        list(
            balance_greedy.plan(
                node_state.derive(cluster), balance_greedy.BalanceGoal(), MoveOptions()
            )
        )
    )
    lengths = [
        len(with_pairs(cluster, max_length=greedy + more)) - greedy for more in range(3)
    ]
    assert lengths == [0, 0, 2]


def test_pairs_gain_what_a_move_must():
    cluster = random_cluster(11)
    greedy = balance_greedy.plan(
        node_state.derive(cluster), balance_greedy.BalanceGoal(), MoveOptions()
    )
    last = list(greedy)[-1]
    gain = last.score - with_pairs(cluster)[-1].score
    limits = {"min_gain_limit": last.score * 1.0001, "min_gain": gain * 1.01}
    assert with_pairs(cluster, **limits)[-1].score >= last.score


def test_disks_stay_in_pairs_too_where_they_must():
    now = node_state.derive(random_cluster(2))
    options = MoveOptions(disk_moves=False)
    steps = list(
        balance_greedy.plan(now, balance_greedy.BalanceGoal(pairs=True), options)
    )
    assert {step.move.kind for step in steps} <= {MoveKind.FAILOVER}
    avoiding = with_pairs(random_cluster(11), avoid_disk_moves=1e9)
    assert avoiding[-1].score < components.value(node_state.derive(random_cluster(11)))


def test_search_is_an_option_of_the_program(monkeypatch):
    path = str(DATA / "stuck.data")
    code, out, err = run_hbal(monkeypatch, "-t", path, "-C", "--search")
    assert (code, err) == (0, "")
    assert out == (DATA / "stuck.out").read_text()
    _code, plain, _err = run_hbal(monkeypatch, "-t", path)
    ends = [float(re.search(r"from .* to (.*)", output)[1]) for output in (out, plain)]
    assert ends[0] < ends[1]


def coefficient(name, output):
    """Return a part of the score as the program prints it at first."""
    return float(re.search(rf"^ +{name} +([0-9.]+)", output, re.MULTILINE)[1])


def test_memory_in_use_and_idle_instances_are_options_of_the_program(
    monkeypatch, tmp_path
):
    sizes = {"kite1": {"owl1": 900, "owl2": 300}, "kite2": {}, "kite3": {}, "kite4": {}}
    saved = [
        {
            "node": f"{node}.lab.test",
            "reports": [
                {"name": "cpu-avg-load", "data": {"cpu_total": 0}},
                {
                    "name": "kvm-inst-rss",
                    "data": {f"{name}.lab.test": size for name, size in rows.items()},
                },
            ],
        }
        for node, rows in sizes.items()
    ]
    path = tmp_path / "mond.json"
    path.write_text(json.dumps(saved))
    kite = ("-t", str(DATA / "kite.data"), "-v", "-v", "-l0")
    mond = ("--mond", f"--mond-data={path}", "--idle-default")
    _code, idle, _err = run_hbal(monkeypatch, *kite, "--idle-default")
    assert coefficient("mem_load_cv", idle) == coefficient("net_load_cv", idle) == 0
    actual = {
        words: run_hbal(monkeypatch, *kite, *mond, *words)
        for words in [(), ("--mond-kvm-rss",), ("--mond-kvm-rss", "--mem-weight=2")]
    }
    assert {(code, err) for code, _out, err in actual.values()} == {(0, "")}
    none, plain, double = (
        coefficient("mem_load_cv", out) for _code, out, _err in actual.values()
    )
    assert none == 0 < plain
    assert double == pytest.approx(2 * plain)


@pytest.mark.parametrize("exclusive", [False, True])
def test_node_values_are_those_of_each_metric(exclusive):
    shape = Shape(10, mixed=True, offline=1, forthcoming=0.2, exclusive=exclusive)
    now = node_state.derive(text.load(made_clusters.make(shape, 1).text(), "made"))
    actual = components.metric_values(now)
    assert list(actual) == list(components.METRICS)
    for name, metric in components.METRICS.items():
        assert actual[name].tolist() == metric.values(now).tolist(), name
