"""Each table of the test for global N+1 against what single instances do.

A failure names the table, the component or rule, the instance, the node, and the
expected and found values.
"""

import itertools

import msgspec
import numpy as np
import pytest

from fakes.plain_score import PlainScore
from fakes.score_terms import Report, odd_cluster, usual_cluster
from ganeti.decisions.htools.alloc import evacuate
from ganeti.decisions.htools.n1 import (
    check,
    evacuees,
    failure_tables,
    simulate,
    slot_count,
)
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.score import components as score
from ganeti.decisions.htools.score import counts
from ganeti.decisions.htools.state import node_state

SEEDS = range(9)
COMPONENTS = list(score.METRICS)


class Case:
    """A cluster, its tables, and its score worked out plainly."""

    def __init__(self, seed):
        self.seed, self.cluster = seed, usual_cluster(seed)
        self.state = node_state.derive(self.cluster)
        self.plain = PlainScore(self.cluster)
        self.places = np.arange(self.state.size)
        self.kinds = failure_tables.EvacueeKinds()
        self.order = {
            node: evacuees.in_order(
                [self.state.instances[n] for n in evacuees.present(self.state, node)]
            )
            for node in range(self.state.size)
        }
        runs = {
            node: self.kinds.runs(self.state, order)
            for node, order in self.order.items()
            if all(item.template != "drbd" for item in order)
        }
        self.lost = [failure_tables.FailedNode(n, r) for n, r in runs.items() if len(r)]
        self.tables = failure_tables.FailureTables(self.state, self.places, self.kinds)
        self.now = self.plain.values(self.state.pri, self.state.sec)

    def node(self, position):
        return f"node {self.cluster.nodes[position].name}"

    def moved(self, inst, node):
        primary = list(self.state.pri)
        primary[inst] = node
        return primary, self.state.sec

    def moves(self):
        """Give instances of lost nodes, their kinds, and each node they are not on."""
        lost = {one.node for one in self.lost}
        for inst, item in enumerate(self.state.instances):
            if self.state.pri[inst] not in lost:
                continue
            kind = self.kinds._number(self.state, item)
            for node in self.places.tolist():
                if node != self.state.pri[inst]:
                    yield inst, kind, node


@pytest.mark.parametrize("seed", SEEDS)
def test_deviations_are_those_worked_out_plainly(seed):
    this, report = Case(seed), Report()
    for row, name in enumerate(COMPONENTS):
        values = [row[name] for row in this.now]
        mean = sum(values) / len(values)
        for node, value in enumerate(values):
            where = f"table away, component {name}, cluster {seed}, {this.node(node)}"
            report.equal(where, value - mean, float(this.tables.away[row, node]))
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_of_nodes_are_those_worked_out_plainly(seed):
    this, report = Case(seed), Report()
    # Of all components, also those that the tables leave out as equal to others.
    this.tables.rows = np.arange(len(COMPONENTS))
    for inst, kind, node in this.moves():
        after = this.plain.values(*this.moved(inst, node))[node]
        actual = this.tables.changes(np.array(kind), np.array(node))
        for at, row in enumerate(this.tables.rows.tolist()):
            name = COMPONENTS[row]
            where = (
                f"table changes, component {name}, cluster {seed}, "
                f"instance {inst} of kind {kind}, {this.node(node)}"
            )
            report.equal(where, after[name] - this.now[node][name], float(actual[at]))
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_fits_by_tables_fits_by_rules(seed):
    this, report = Case(seed), Report()
    for inst, kind, node in this.moves():
        item = this.state.instances[inst]
        rows = constraints.primary(this.state, item, strict=False)
        codes = constraints.verdict(rows, this.state.size)
        fits = this.tables.fits(this.tables.needs[:, kind])
        where = (
            f"tables left and needs, cluster {seed}, instance {inst} of kind {kind}, "
            f"{this.node(node)}"
        )
        report.equal(where, codes[node] == 0, bool(fits[node]))
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_standard_deviations_of_a_step_are_those_worked_out_plainly(seed):
    this, report = Case(seed), Report()
    progress = failure_tables.EvacuationProgress(this.tables, this.lost)
    step = simulate._EvacuationStep(progress, np.arange(len(this.lost)), 0)
    step._set_costs()
    step._leave()
    for at, lost in enumerate(this.lost):
        item = this.order[lost.node][0]
        inst = this.state.instances.index(item)
        for column, node in enumerate(step.columns.tolist()):
            if node == lost.node:
                continue
            after = this.plain.components(*this.moved(inst, node))
            for row, number in enumerate(this.tables.rows.tolist()):
                name = COMPONENTS[number]
                variance = step.extra[row, at, column] + step.variance[row, at]
                variance -= step.slope[row, at, column] * step.mean[row, at]
                where = (
                    f"tables extra, slope, mean and variance, component {name}, "
                    f"cluster {seed}, instance {inst} to {this.node(node)}"
                )
                report.near(where, after[name], float(np.sqrt(max(0.0, variance))))
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_of_places_differ_as_scores_do(seed):
    this, report = Case(seed), Report()
    progress = failure_tables.EvacuationProgress(this.tables, this.lost)
    step = simulate._EvacuationStep(progress, np.arange(len(this.lost)), 0)
    step._set_costs()
    step._leave()
    costs = step._costs()
    for at, lost in enumerate(this.lost):
        inst = this.state.instances.index(this.order[lost.node][0])
        fits = (step.room[:, at] > step.size[:, at, None]).all(axis=0)
        there = [
            (column, node)
            for column, node in enumerate(step.columns.tolist())
            if fits[column]
        ]
        scores = {
            column: sum(
                weight * this.plain.components(*this.moved(inst, node))[name]
                for name, weight in score.WEIGHTS
                # Others are never simulated: instances are moved one by one then.
                if name not in score.COUNTS or score.COUNTS[name].is_simulated
            )
            for column, node in there
        }
        for (one, node), (two, other) in itertools.pairwise(there):
            where = (
                f"cost, cluster {seed}, instance {inst}, {this.node(node)} "
                f"instead of {this.node(other)}"
            )
            actual = float(costs[at, one] - costs[at, two])
            report.near(where, scores[one] - scores[two], actual)
    report.check()


@pytest.mark.parametrize("seed", range(40))
def test_failovers_by_tables_are_possible_one_by_one(seed):
    cluster = odd_cluster(seed)
    state, report = node_state.derive(cluster), Report()
    test = check.GlobalN1(state)
    possible = test.failovers.possible(state)
    for first, second in itertools.permutations(range(state.size), 2):
        copy = state.copy()
        pair = [
            inst
            for inst in copy.primaries[first]
            if copy.sec[inst] == second and not copy.instances[inst].forthcoming
        ]
        memory = sum(
            state.instances[inst].memory
            for inst in pair
            if state.instances[inst].uses_memory
        )
        names = [cluster.nodes[node].name for node in (first, second)]
        where = f"cluster {seed}, failovers from {names[0]} to {names[1]}"
        report.equal(
            f"table exists, {where}", bool(pair), test.failovers.exists[first, second]
        )
        report.equal(
            f"table memory, {where}", memory, test.failovers.memory[first, second]
        )
        refusals = [evacuate.failover(copy, inst, force=True) for inst in pair]
        report.equal(
            f"possible, {where}", not any(refusals), bool(possible[first, second])
        )
    report.check()


def test_places_are_counted_as_one_by_one():
    report = Report()
    for size, room in itertools.product(range(5), range(25)):
        # Something must be left; of what needs nothing any number fits there.
        expected = 0
        while size and (expected + 1) * size < room:
            expected += 1
        where = f"places of {size} in {room}"
        one, many = np.array([float(room)]), np.array([[[float(room)]]])
        sizes = np.array([[float(size)]])
        for above in (False, True):
            actual = {
                "places_for": slot_count.places_for(size, -1.0, one, one, above=above),
                "count_places": slot_count.count_places(sizes, many, above=above)[0],
            }
            for term, (count,) in actual.items():
                if not size:
                    assert (count > 0) == (room > 0), f"{term}, {where}"
                elif above:
                    report.at_most(f"{term}, {where}, exact", expected, count)
                    report.at_most(f"{term}, {where}, above", count, expected + 1)
                else:
                    report.at_most(f"{term}, {where}, below", count, expected)
                    report.at_most(f"{term}, {where}, exact", expected, count + 1)
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_count_may_read_attributes_that_no_instance_changes(seed, monkeypatch):
    this, report = Case(seed), Report()
    tight = counts.NodeCount(
        lambda nodes: (nodes.unallocated < nodes.t_mem / 4) * nodes.held,
        ("unallocated", "held"),
    )
    progress = failure_tables.EvacuationProgress(this.tables, this.lost)
    step = simulate._EvacuationStep(progress, np.arange(len(this.lost)), 0)
    step._set_costs()
    without = step._costs()
    monkeypatch.setitem(score.COUNTS, "tight_cnt", tight)
    monkeypatch.setitem(score.WEIGHT, "tight_cnt", 1.0)
    change, state = step._costs() - without, this.state
    for at, lost in enumerate(this.lost):
        item = this.order[lost.node][0]
        for column, node in enumerate(step.columns.tolist()):
            free, held, limit = (
                float(row[node]) for row in (state.unallocated, state.held, state.t_mem)
            )
            if node == lost.node:
                continue
            taken = item.memory if item.uses_memory else 0
            after = (held + 1) * (free - taken < limit / 4)
            where = f"by_arrival, cluster {seed}, {item.name} to {this.node(node)}"
            wanted = after - held * (free < limit / 4)
            report.near(where, wanted, float(change[at, column]))
    report.check()


def test_instances_that_differ_by_name_and_place_are_examined_once(monkeypatch):
    this, examined = Case(0), []
    real = failure_tables._kind

    def kind(state, item):
        examined.append(item)
        return real(state, item)

    monkeypatch.setattr(failure_tables, "_kind", kind)
    first = this.state.instances[0]
    changes = [{"name": f"i{n}", "primary": n, "secondary": -1} for n in range(5)]
    equals = [msgspec.structs.replace(first, **change) for change in changes]
    other = msgspec.structs.replace(first, memory=first.memory + 1)
    kinds = failure_tables.EvacueeKinds()
    assert kinds.runs(this.state, [first, *equals, other])[:, 1].tolist() == [6, 1]
    assert len(examined) == 2
    for item in this.state.instances:
        number = kinds._number(this.state, item)
        assert kinds.listed[number] == real(this.state, item)
