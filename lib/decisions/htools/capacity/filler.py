"""Equal instances placed one after another: the place of each, until none fits.

The choices are those of ``alloc.allocate``, kept up to date step by step: after a
placement only the columns of its nodes are computed again. Above ``EXACT_NODES`` nodes,
several instances are placed between two looks at the whole cluster, each on nodes of
its own; the choices may then differ from one-by-one placement.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ganeti.decisions.htools.capacity.node_tables import NodeTables
from ganeti.decisions.htools.capacity.pair_scores import PairScores
from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.components import RESERVED, RESERVED_TOTAL
from ganeti.decisions.htools.state.amounts import Flags, Floats, Places
from ganeti.decisions.htools.state.node_state import ClusterState

#: Most nodes for which every placement compares all candidates.
EXACT_NODES: Final = 48
#: Nodes per instance that is placed between two looks at a larger cluster.
_NODES_PER_STEP: Final = 32
_WEIGHT: Final = dict(components.WEIGHTS)
_NAMES: Final = [name for name, _weight in components.WEIGHTS]
#: Components that are no standard deviations, and their positions.
_OTHER: Final = [name for name in _NAMES if name not in NodeTables.METRICS]
_OTHERS: Final = np.array([NodeTables.ORDER[name] for name in _OTHER])
_WEIGHTS: Final = np.array([weight for _name, weight in components.WEIGHTS])


class _FillScores:
    """Terms of the score with one more copy of the instance, at each candidate."""

    def __init__(
        self, tables: NodeTables, up: Places, fixed: dict[str, float], *, exact: bool
    ) -> None:
        self._tables, self._up, self._fixed, self._exact = tables, up, fixed, exact
        #: Counts that placements change, by name.
        self._counts = {
            name: count
            for name, count in components.COUNTS.items()
            if count.is_filled(tables)
        }

    def statistics(self) -> tuple[Floats, Floats]:
        """Return sum and variance of each component, over the online nodes."""
        values = self._tables.base[:, self._up]
        n = len(self._up)
        # Approximate choices need no particular digits.
        if not self._exact:
            return values.sum(axis=1), values.var(axis=1)
        total = np.add.accumulate(values, axis=1)[:, -1]
        away = values - (total / n)[:, None]
        away *= away
        return total, np.add.accumulate(away, axis=1)[:, -1] / n

    def constants(self) -> dict[str, float]:
        """Return the present values of components that are no standard deviations."""
        tables, up = self._tables, self._up
        out = dict(self._fixed)
        out[RESERVED_TOTAL] = components.total(tables.base[tables.RESERVED, up])
        out |= {n: count.filled(tables, up) for n, count in self._counts.items()}
        return out

    def by_copy(self) -> dict[str, tuple[Floats, Floats]]:
        """Return the changes of counts by one more primary or secondary per node."""
        changes = {n: count.by_copy(self._tables) for n, count in self._counts.items()}
        return {name: both for name, both in changes.items() if both is not None}

    def pair_terms(self) -> list[tuple[str, Floats]]:
        """Return the further changes of counts: primaries x secondaries."""
        terms = [(n, count.by_pair(self._tables)) for n, count in self._counts.items()]
        return [(name, pairs) for name, pairs in terms if pairs is not None]

    def of_pairs(self, rows: Places, columns: Places, kept: Floats) -> Floats:
        """Return [primary, secondary] -> score, added in the order of components."""
        tables, n = self._tables, len(self._up)
        sums, variance = self.statistics()
        change, squares = tables.first[:, rows], tables.first_squares[:, rows]
        after = _moved(n, sums[:, None], variance[:, None], change, squares)
        # The secondary starts from the sums after the primary.
        sums_after = sums[:, None] + change
        parts = np.empty((len(_NAMES), len(rows), len(columns)))
        constant = self.constants()
        parts[_OTHERS] = np.array([constant[name] for name in _OTHER])[:, None, None]
        parts[tables.IN_ORDER] = np.sqrt(after)[:, :, None]
        both = tables.changes_second
        change = tables.second[both][:, None, columns]
        squares = tables.second_squares[both][:, None, columns]
        parts[tables.IN_ORDER[both]] = np.sqrt(
            _moved(n, sums_after[both, :, None], after[both, :, None], change, squares)
        )
        self._add_kept(parts, columns, kept, sums=sums, variance=variance)
        for name, (first, second) in self.by_copy().items():
            parts[tables.ORDER[name]] += first[rows][:, None] + second[columns]
        for name, pairs in self.pair_terms():
            parts[tables.ORDER[name]] += pairs[np.ix_(rows, columns)]
        parts *= _WEIGHTS[:, None, None]
        out: Floats = np.add.reduce(parts, axis=0)
        return out

    def _add_kept(
        self,
        parts: Floats,
        columns: Places,
        kept: Floats,
        *,
        sums: Floats,
        variance: Floats,
    ) -> None:
        """Enter the terms that depend on the memory that secondaries reserve."""
        tables, row = self._tables, self._tables.RESERVED
        new = tables.memory_part(kept, columns)
        old = tables.base[row, columns]
        change = new - old
        squares = new * new - old * old
        variance_after = _moved(
            len(self._up), sums[row], variance[row], change, squares
        )
        parts[tables.IN_ORDER[row]] = np.sqrt(variance_after)
        parts[tables.ORDER[RESERVED_TOTAL]] += change

    def costs(
        self,
        role: int,
        change: Floats,
        squares: Floats,
        statistics: tuple[Floats, Floats],
    ) -> Floats:
        """Return per node the weighted terms with one more primary or secondary."""
        sums, variance = statistics
        n = len(self._up)
        after = _moved(n, sums[:, None], variance[:, None], change, squares)
        weights = self._tables.weights
        out: Floats = weights @ np.sqrt(after)
        for name, both in self.by_copy().items():
            out = out + _WEIGHT[name] * both[role]
        return out


class Filler:
    """Puts copies of one instance into a state, which changes.

    The instance has no tags and runs; its copies share one record.
    """

    def __init__(
        self,
        state: ClusterState,
        item: Instance,
        usable: Sequence[int],
        *,
        exact_nodes: int = EXACT_NODES,
    ) -> None:
        """Prepare.

        Args:
            state: without the instances; it changes with each placement.
            item: the instance.
            usable: nodes that may be used; offline ones are left out.
            exact_nodes: most nodes for which every placement compares all candidates.
        """
        self.state, self.item = state, item
        self.pairs = item.template == "drbd"
        self.tables = NodeTables(state, item, policy_fits(state, item))
        nodes = [node for node in usable if state.online[node]]
        self.usable: Places = np.array(nodes, np.intp)
        self.up: Places = np.nonzero(state.online)[0]
        self.where = np.full(state.size, -1, np.intp)
        self.where[self.up] = np.arange(len(self.up))
        # Above, the best of all pairs is not worth its O(n^2).
        self.exact = len(self.usable) <= exact_nodes
        self.several = max(1, len(self.usable) // _NODES_PER_STEP)
        fixed = components.components(state)
        self.scores = _FillScores(self.tables, self.up, fixed, exact=self.exact)
        #: Places that a longer filling begins with, one list per look.
        self.steps: list[list[tuple[int, ...]]] = []
        self.quick: PairScores | None = None
        if self.exact and self.pairs and PairScores.suits(self.tables):
            self.quick = PairScores(self.tables, self.usable, self.up, fixed)

    def fill(
        self,
        most: int | None = None,
        known: Sequence[list[tuple[int, ...]]] = (),
    ) -> list[tuple[int, ...]]:
        """Place instances until none fits or ``most`` are placed; return their nodes.

        Args:
            most: most instances; None for any number.
            known: the steps of another filling of an equal state, of several each.
        """
        out = self._again(known, most) if known else []
        while most is None or len(out) < most:
            left = None if most is None else most - len(out)
            steps = self._next(left)
            if not steps:
                break
            # A step that the limit shortened is not part of longer fillings.
            if left is None or left >= self.several or self.is_steady:
                self.steps.append(steps)
            out += steps
        self.tables.settle()
        put(self.state, self.item, out)
        return out

    def _again(
        self, known: Sequence[list[tuple[int, ...]]], most: int | None
    ) -> list[tuple[int, ...]]:
        """Repeat the steps that are the same here: those that no limit shortens."""
        out: list[tuple[int, ...]] = []
        for step in known:
            # The last step may be shorter here, and then choose other nodes.
            if most is not None and most - len(out) < self.several:
                break
            for nodes in step:
                self.tables.take(nodes)
            self.steps.append(step)
            out += step
        if out:
            self.tables.refresh(sorted({node for nodes in out for node in nodes}))
        return out

    @property
    def is_steady(self) -> bool:
        """Whether a shorter filling is the beginning of a longer one."""
        return self.exact or not self.pairs

    def repeat(self, places: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Place instances where another filling of an equal state put them."""
        for nodes in places:
            self.tables.take(nodes)
        self.tables.settle()
        put(self.state, self.item, places)
        return list(places)

    def _next(self, left: int | None) -> list[tuple[int, ...]]:
        if self.quick:
            pair = self.quick.best()
            if pair is None:
                return []
            self.quick.take(*pair)
            return [pair]
        if self.exact:
            best = self._best_pair() if self.pairs else self._best_single()
            if best is None:
                return []
            self.tables.take(best)
            self.tables.refresh(list(best))
            return [best]
        most = self.several if left is None else min(left, self.several)
        result = self._good_pairs(most) if self.pairs else self._good_singles(most)
        if result:
            self.tables.refresh([node for nodes in result for node in nodes])
        return result

    # All candidates
    def _best_single(self) -> tuple[int] | None:
        """Return the best node by complete scores; the last on ties."""
        tables = self.tables
        fine = self.usable[tables.can_first[self.usable]]
        if not len(fine):
            return None
        constant = self.scores.constants()
        values = tables.base[:, self.up]
        table = np.repeat(values[:, :, None], len(fine), axis=2)
        at = self.where[fine]
        # One column per candidate, with its own node replaced.
        table[:, at, np.arange(len(fine))] = tables.first_values[:, fine]
        table -= (np.add.reduce(table, axis=1) / len(self.up))[:, None, :]
        table *= table
        metrics = np.sqrt(np.add.reduce(table, axis=1) / len(self.up))
        total = np.zeros(len(fine))
        _sums, variance = self.scores.statistics()
        changes = self.scores.by_copy()
        for name in _NAMES:
            place = tables.METRICS.get(name)
            if place is None:
                component: Floats | float = constant[name]
                if name in changes:
                    component = component + changes[name][0][fine]
            elif tables.changes_first[place]:
                component = metrics[place]
            else:
                component = float(np.sqrt(variance[place]))
            total = total + _WEIGHT[name] * component
        return (int(fine[len(fine) - 1 - int(np.argmin(total[::-1]))]),)

    def _best_pair(self) -> tuple[int, int] | None:
        """Return the best pair by the incremental form; the last on ties."""
        tables = self.tables
        rows = self.usable[tables.can_first[self.usable]]
        columns = self.usable[tables.can_second[self.usable]]
        if not len(rows) or not len(columns):
            return None
        kept = tables.kept_pairs(rows, columns)
        fine = tables.pairs_fine(rows, columns, kept)
        if not fine.any():
            return None
        total = self.scores.of_pairs(rows, columns, kept)
        total[~fine] = np.inf
        flat = total.ravel()
        # The last of the lowest scores, as published.
        place = len(flat) - 1 - int(np.argmin(flat[::-1]))
        row, column = divmod(place, len(columns))
        return int(rows[row]), int(columns[column])

    # Several at a time
    def _good_singles(self, most: int) -> list[tuple[int, ...]]:
        fine = self.usable[self.tables.can_first[self.usable]]
        if not len(fine):
            return []
        known = self.scores.statistics()
        tables = self.tables
        costs = self.scores.costs(0, tables.first, tables.first_squares, known)[fine]
        order = len(fine) - 1 - np.argsort(costs[::-1], kind="stable")[:most]
        out: list[tuple[int, ...]] = []
        for node in fine[order]:
            self.tables.take((int(node),))
            out.append((int(node),))
        return out

    def _good_pairs(self, most: int) -> list[tuple[int, ...]]:
        """Place up to ``most`` instances, each on two nodes of its own."""
        tables = self.tables
        fine = self.usable[tables.can_first[self.usable]]
        if not len(fine) or not tables.can_second[self.usable].any():
            return []
        known = self.scores.statistics()
        first = self.scores.costs(0, tables.first, tables.first_squares, known)[fine]
        second = self.scores.costs(1, tables.second, tables.second_squares, known)
        left = np.zeros(self.state.size, bool)
        left[self.usable] = tables.can_second[self.usable]
        # Four times as many cheap partners as needed are nearly always enough.
        cheap = np.sort(self.usable[np.argsort(second[self.usable])[: 4 * most]])
        out: list[tuple[int, ...]] = []
        order = len(fine) - 1 - np.argsort(first[::-1], kind="stable")
        taken: set[int] = set()
        for node in fine[order].tolist():
            if node in taken:
                continue
            partner = self._partner(node, second, left, cheap)
            if partner is None:
                partner = self._partner(node, second, left, self.usable)
            if partner is None:
                continue
            taken |= {node, partner}
            left[[node, partner]] = False
            tables.take((node, partner))
            out.append((node, partner))
            if len(out) >= most:
                break
        return out

    def _partner(
        self, node: int, costs: Floats, left: Flags, places: Places
    ) -> int | None:
        """Return the best secondary for a primary among places that are left."""
        tables, state = self.tables, self.state
        kept, reserved = tables.kept(node, places), tables.reserved[places]
        fine = left[places] & (state.group[places] == state.group[node])
        fine &= tables.is_failing[places] | (tables.unallocated[places] > kept)
        fine &= places != node
        if not fine.any():
            return None
        # A rise adds to the total, and at most as much to the deviation.
        more = (kept - reserved) / state.t_mem[places]
        weight = _WEIGHT[RESERVED_TOTAL] + _WEIGHT[RESERVED]
        total = costs[places] + more * weight
        for name, pairs in self.scores.pair_terms():
            total = total + _WEIGHT[name] * pairs[node, places]
        total[~fine] = np.inf
        return int(places[len(places) - 1 - int(np.argmin(total[::-1]))])


def policy_fits(state: ClusterState, item: Instance) -> Flags:
    """Return for each node whether the policy of its group accepts an instance."""
    known: dict[tuple[int, bool], bool] = {}
    out = np.zeros(state.size, bool)
    for node in range(state.size):
        key = (int(state.group[node]), bool(state.exclusive[node]))
        if key not in known:
            rules = state.cluster.groups[key[0]].policy
            known[key] = constraints.policy(item, rules, exclusive=key[1]) is None
        out[node] = known[key]
    return out


def put(state: ClusterState, item: Instance, placed: Sequence[tuple[int, ...]]) -> None:
    """Enter instances into the lists of a state whose amounts count them already."""
    for nodes in placed:
        index = state.new(item)
        state.pri[index] = nodes[0]
        state.primaries[nodes[0]].insert(0, index)
        if len(nodes) > 1:
            state.sec[index] = nodes[1]
            state.secondaries[nodes[1]].insert(0, index)


def _moved(
    n: int,
    total: Floats | float,
    variance: Floats | float,
    change: Floats,
    squares: Floats,
) -> Floats:
    """Return the variance after one of n values, and its square, changed."""
    step = ((n * squares - 2 * total * change) - change * change) / (n * n)
    return np.asarray(np.maximum(0, variance + step))
