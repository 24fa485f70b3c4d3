"""Each term of the lower bounds of moves, against all moves that it is a bound of.

A failure names the term, the component, the move, the bound and what is below it.
"""

import functools

import numpy as np
import pytest

from fakes.plain_score import DEVIATIONS, WEIGHT
from fakes.score_terms import SEEDS, Report, case
from ganeti.decisions.htools.balance import lower_bounds, secants
from ganeti.decisions.htools.balance.lower_bounds import MoveBounds
from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score import components as score
from ganeti.decisions.htools.score import deviations
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state import node_state

#: Parts of a range at which a bound over all of it is tried.
PARTS = np.linspace(0.0, 1.0, 9)


def columns(estimator):
    """Name the component of each column of standard deviations."""
    names = {row: name for name, row in deviations._METRIC_ROWS.items()}
    return [*(names[row] for row in estimator.metrics._rows), "reserved_mem_cv"]


def options(this):
    """Ignore soft rules in half of the clusters: more moves, and worse ones."""
    return MoveOptions(force=this.seed % 2 == 1)


class Terms:
    """The bounds of a cluster, and the parts that all its moves have of them."""

    def __init__(self, this):
        self.this = this
        self.estimator = estimator = MoveEstimator(this.state, options(this))
        self.inst = np.nonzero(~estimator.deltas.not_additive)[0]
        self.bounds = MoveBounds(estimator, self.inst, np.nonzero(this.state.online)[0])
        self.secant_bounds = self.bounds._secants
        self.count = estimator.metrics.count

    def kinds(self):
        """Give each kind of move: its moves without and with their targets."""
        rules, this = self.estimator.move_rules, self.this
        nowhere = np.full(len(self.inst), lower_bounds._NOWHERE)
        for row, kind in enumerate(self.bounds.kinds):
            own = rules.move(kind, self.inst, nowhere)
            numbers = [n for n, (_i, m) in enumerate(this.moves) if m.kind == kind]
            inst = np.array([this.moves[n][0] for n in numbers], np.int64)
            target = np.array([this.moves[n][1].target for n in numbers], np.int64)
            move = rules.move(kind, inst, target)
            reserved = rules.reserved_after(move)
            yield row, own, move, reserved, numbers

    def gains(self, move, reserved):
        """Return the changes of the sums of squares, less what the mean takes."""
        steps = self.estimator._steps(move, reserved)
        metrics = self.estimator.metrics
        gains, _sums = metrics.gains(self.secant_bounds.moments, steps)
        return np.broadcast_to(
            gains * self.count, (len(move.inst), len(metrics.weight))
        )

    def interval(self, own):
        """Return the least and the most that sums of squares may change by."""
        bounds = self.bounds
        size = bounds._size
        kept = self.estimator.move_rules.least_reserved(own)
        low, high = bounds._squares([own], size)
        _change, low[..., -1], high[..., -1], _mean = bounds._kept([own], [kept], size)
        limits = self.secant_bounds.limits[own.ends.target]
        return low[0] + limits.low[size], high[0] + limits.high[size]


@pytest.mark.parametrize("seed", SEEDS)
def test_limits_of_targets_hold_for_every_target(seed):
    terms, report = Terms(case(seed)), Report()
    metrics, secant_bounds = terms.estimator.metrics, terms.secant_bounds
    sizes, names = secant_bounds._sizes, columns(terms.estimator)
    for role, limits in secant_bounds.limits.items():
        for node in terms.bounds.target.tolist():
            step = sizes.gain[role] * metrics.inverse[node]
            if metrics.second is not None:
                step = step + sizes.more[role] * metrics.second[node]
            far = secant_bounds.moments.deviation[node]
            square = step * (2.0 * far + step)
            for size, column in np.ndindex(*step.shape):
                if names[column] == "reserved_mem_cv" and role == "s":
                    continue
                where = (
                    f"limits of targets, component {names[column]}, cluster {seed}, "
                    f"role {role}, size {size}, {terms.this.node(node)}"
                )
                actual = square[size, column]
                report.at_most(f"{where}, least", limits.low[size, column], actual)
                report.at_most(f"{where}, most", -limits.high[size, column], -actual)
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_ranges_of_variances_hold_for_every_move(seed):
    this = case(seed)
    terms, report = Terms(this), Report()
    names = columns(terms.estimator)
    for _row, own, move, reserved, numbers in terms.kinds():
        low, high = terms.interval(own)
        gains = terms.gains(move, reserved)
        place = {inst: at for at, inst in enumerate(terms.inst.tolist())}
        for at, number in enumerate(numbers):
            inst = place[int(move.inst[at])]
            for column, name in enumerate(names):
                where = f"range of the variance, component {name}, "
                where += this.move(*this.moves[number])
                actual = gains[at, column]
                report.at_most(f"{where}, least", low[inst, column], actual)
                report.at_most(f"{where}, most", -high[inst, column], -actual)
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_secants_lie_below_roots_for_every_component(seed):
    terms, report = Terms(case(seed)), Report()
    names, metrics = columns(terms.estimator), terms.estimator.metrics
    weight, variance = metrics.weight.copy(), terms.secant_bounds.moments.variance
    for column, name in enumerate(names):
        # The roots of all others count nothing: what is left is this component's.
        metrics.weight = np.where(np.arange(len(names)) == column, weight, 0.0)
        secant_bounds = secants.SecantBounds(
            metrics, terms.secant_bounds._sizes, terms.bounds.target
        )
        for _row, own, _move, _reserved, _numbers in terms.kinds():
            low, high = terms.interval(own)
            limits = secant_bounds.limits[own.ends.target]
            size = terms.bounds._size
            start = secant_bounds.below(
                [own.ends.target],
                size,
                (low - limits.low[size])[None],
                (high - limits.high[size])[None],
                np.ones((1, len(size)), np.bool_),
            )[0]
            for inst, part in np.ndindex(len(size), len(PARTS)):
                ends = low[inst, column], high[inst, column]
                gain = max(
                    (ends[0] + PARTS[part] * (ends[1] - ends[0])) / terms.count,
                    -variance[column],
                )
                root = np.sqrt(variance[column] + gain) - np.sqrt(variance[column])
                slope = secant_bounds.slope[size[inst], column]
                where = (
                    f"secant, component {name}, cluster {seed}, {own.kind.name} of "
                    f"instance {terms.inst[inst]}, change of the variance {gain:.6g}"
                )
                line = start[inst] + slope * gain
                report.at_most(where, line, weight[column] * root)
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_reserved_memory_costs_at_least_its_bound(seed):
    terms, report = Terms(case(seed)), Report()
    secant_bounds, metrics = terms.secant_bounds, terms.estimator.metrics
    for size, kept in enumerate(secant_bounds._sizes.kept.tolist()):
        for node in terms.bounds.target.tolist():
            for least, most in ((0, kept), (-kept, 0), (-kept, kept), (kept, kept)):
                slope = secant_bounds.slope[size, -1]
                bound = secant_bounds.reserve(
                    np.array([slope]), np.array([node]), least, most
                )[0]
                far = secant_bounds.moments.deviation[node, -1]
                for more in least + PARTS * (most - least):
                    step = more * metrics.inverse_memory[node]
                    actual = slope * step * (2.0 * far + step) / terms.count
                    actual += score.WEIGHT["reserved_mem_rtotal"] * step
                    where = (
                        f"reserved memory, cluster {seed}, size {size}, "
                        f"{terms.this.node(node)}, {more:.0f} MiB more"
                    )
                    report.at_most(where, bound, actual)
    report.check()


def alone(monkeypatch, name):
    """Let the score be one component alone, without its weight."""
    for each in score.WEIGHT:
        monkeypatch.setitem(score.WEIGHT, each, float(each == name))
    monkeypatch.setattr(secants, "RISE", score.WEIGHT["reserved_mem_rtotal"])


def compare(report, name, this, bounds):
    """Compare the bounds of all legal moves with what these change."""
    place = {int(inst): at for at, inst in enumerate(bounds._inst)}
    column = {int(node): at for at, node in enumerate(bounds.target)}
    every = np.arange(len(bounds._inst))
    pairs = {kind: bounds.pairs(kind, every) for kind in bounds.kinds}
    for number in legal(this):
        inst, move = this.moves[number]
        row = place[inst]
        where = f"bound of component {name}, {this.move(inst, move)}"
        actual = this.change(number, name)
        if move.kind == MoveKind.FAILOVER:
            report.at_most(where, bounds.swaps[row], actual)
            continue
        pair = pairs[move.kind][row, column[move.target]]
        report.at_most(where, pair, actual)
        least = bounds.rows[bounds.kinds.index(move.kind), row]
        report.at_most(f"{where}, of all targets", least, pair)


@functools.cache
def legal(this):
    """List the numbers of moves that are allowed."""
    return [
        number
        for number, (inst, move) in enumerate(this.moves)
        if not moves.failure(this.state, inst, move, force=options(this).force)
    ]


@pytest.mark.parametrize("name", WEIGHT)
def test_no_move_changes_a_component_by_less_than_its_bound(name, monkeypatch):
    alone(monkeypatch, name)
    report = Report()
    for this in map(case, SEEDS):
        terms = Terms(this)
        compare(report, name, this, terms.bounds)
    report.check()


@pytest.mark.parametrize("name", WEIGHT)
def test_bounds_of_a_component_hold_after_moves_with_the_slack(name, monkeypatch):
    alone(monkeypatch, name)
    # Secants that reach everywhere: no move lets all bounds be made again.
    monkeypatch.setattr(secants, "_MARGIN", 100.0)
    report, slack = Report(), 0.0
    for this in map(case, SEEDS):
        state = node_state.derive(this.plain.cluster)
        estimator = MoveEstimator(state, options(this))
        inst = np.nonzero(~estimator.deltas.not_additive)[0]
        bounds = MoveBounds(estimator, inst, np.nonzero(state.online)[0])
        monkeypatch.setattr(bounds, "_price", np.inf)
        for which, move in this.walk:
            touched = {state.pri[which], state.sec[which], move.target} - {NONE}
            moves.apply(state, which, move)
            nodes = np.array(sorted(touched))
            estimator.deltas.moved(which)
            estimator.refresh(nodes)
            bounds.refresh(nodes)
        slack = max(slack, bounds.slack)
        compare(report, name, this, bounds)
    report.check()
    if name in DEVIATIONS:
        assert slack > 0
