"""Each component of the score, and each shortcut to its change, against plain loops.

A failure names the component, the move, the node, and the expected and found values.
"""

import numpy as np
import pytest

from fakes.plain_score import DEVIATIONS, WEIGHT
from fakes.score_terms import SEEDS, Report, case
from ganeti.decisions.htools.balance import search
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score import components as score
from ganeti.decisions.htools.score import deviations
from ganeti.decisions.htools.score.move_estimates import MoveEstimator


def only(monkeypatch, name):
    """Let the score be one component alone, without its weight."""
    table = tuple((each, float(each == name)) for each, _weight in score.WEIGHTS)
    monkeypatch.setattr(score, "WEIGHTS", table)


def test_moves_of_the_clusters_change_every_component():
    changed = {
        name
        for this in map(case, SEEDS)
        for number in range(len(this.moves))
        for name in WEIGHT
        if this.change(number, name)
    }
    assert changed == set(WEIGHT)


def test_weights_and_their_order_are_those_published():
    assert tuple(WEIGHT.items()) == score.WEIGHTS


@pytest.mark.parametrize("seed", SEEDS)
def test_each_component_is_the_one_worked_out_plainly(seed):
    this, report = case(seed), Report()
    values = score.metric_values(this.state)
    for name in DEVIATIONS:
        for node, row in enumerate(this.now.rows):
            where = f"component {name}, cluster {seed}, {this.node(node)}"
            report.equal(where, row[name], float(values[name][node]))
    actual = score.components(this.state)
    for name, expected in this.now.components.items():
        report.equal(f"component {name}, cluster {seed}", expected, actual[name])
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_deltas_of_each_node_are_those_worked_out_plainly(seed):
    this, report = case(seed), Report()
    trials = search._Trials(MoveEstimator(this.state, MoveOptions()), this.moves)
    values = {name: metric.values(trials) for name, metric in score.METRICS.items()}
    for number, (inst, move) in enumerate(this.moves):
        rows, text = this.after[number].rows, this.move(inst, move)
        for column, node in enumerate(trials._places[number].tolist()):
            for name, table in values.items():
                where = f"component {name}, {text}, {this.node(node)}"
                report.equal(where, rows[node][name], float(table[number, column]))
    report.check()


@pytest.mark.parametrize("name", WEIGHT)
def test_exact_deltas_of_each_component_are_those_worked_out_plainly(name, monkeypatch):
    only(monkeypatch, name)
    report = Report()
    for this in map(case, SEEDS):
        scores = search.exact_after(this.state, this.moves)
        for number, actual in enumerate(scores):
            where = f"component {name}, {this.move(*this.moves[number])}"
            expected = this.after[number].components[name]
            report.equal(where, expected, actual)
    report.check()


class Estimates:
    """The parts of the estimates of all moves of one kind."""

    def __init__(self, this, kind):
        self.this, self.kind = this, kind
        self.estimator = estimator = MoveEstimator(this.state, MoveOptions())
        self.numbers = [
            number for number, (_i, move) in enumerate(this.moves) if move.kind == kind
        ]
        inst = np.array([this.moves[number][0] for number in self.numbers], np.int64)
        target = np.array(
            [this.moves[number][1].target for number in self.numbers], np.int64
        )
        rules = estimator.move_rules
        self.move = rules.move(kind, inst, target)
        self.reserved = rules.reserved_after(self.move)
        self.steps = estimator._steps(self.move, self.reserved)

    def columns(self):
        """Name the component of each column of standard deviations."""
        names = {row: name for name, row in deviations._METRIC_ROWS.items()}
        return [
            *(names[row] for row in self.estimator.metrics._rows),
            "reserved_mem_cv",
        ]

    def counted(self):
        """Give the changes of the components that count something."""
        return {
            name: changes.change(self.move, self.reserved)
            for name, changes in self.estimator.counts.items()
        }


KINDS = [pytest.param(kind, id=kind.name) for kind in MoveKind]


@pytest.mark.parametrize("kind", KINDS)
def test_estimated_steps_of_nodes_are_those_worked_out_plainly(kind):
    report = Report()
    for this in map(case, SEEDS):
        part = Estimates(this, kind)
        for at, number in enumerate(part.numbers):
            before, after = this.now.rows, this.after[number].rows
            text = this.move(*this.moves[number])
            # Of nodes offline nothing counts here.
            nodes = {int(nodes[at]): step[at] for nodes, step in part.steps}
            for node in np.nonzero(this.state.online)[0].tolist():
                step = nodes.get(node, np.zeros(len(part.columns())))
                for column, name in enumerate(part.columns()):
                    expected = after[node][name] - before[node][name]
                    where = f"step of {name}, {text}, {this.node(node)}"
                    report.equal(where, expected, float(step[column]))
    report.check()


@pytest.mark.parametrize("kind", KINDS)
def test_estimated_standard_deviations_are_those_worked_out_plainly(kind):
    report = Report()
    for this in map(case, SEEDS):
        part = Estimates(this, kind)
        if not part.steps:
            continue
        moments = part.estimator.metrics.moments
        gains, sums = part.estimator.metrics.gains(moments, part.steps)
        roots = np.sqrt(np.maximum(moments.variance + gains, 0.0))
        for at, number in enumerate(part.numbers):
            text, after = this.move(*this.moves[number]), this.after[number].components
            for column, name in enumerate(part.columns()):
                where = f"component {name}, {text}"
                report.near(where, after[name], float(roots[at, column]))
            expected = this.change(number, "reserved_mem_rtotal")
            where = f"component reserved_mem_rtotal, {text}"
            report.equal(where, expected, float(sums[at, -1]))
    report.check()


@pytest.mark.parametrize("kind", KINDS)
def test_estimated_counts_are_those_worked_out_plainly(kind):
    report = Report()
    for this in map(case, SEEDS):
        part = Estimates(this, kind)
        size = len(part.numbers)
        for name, values in part.counted().items():
            change = np.broadcast_to(values, (size,))
            for at, number in enumerate(part.numbers):
                expected = this.change(number, name)
                where = f"component {name}, {this.move(*this.moves[number])}"
                report.equal(where, expected, float(change[at]))
    report.check()
