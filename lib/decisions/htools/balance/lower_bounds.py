"""Lower bounds of the score changes of all moves, without a look at each move.

The bound of a move of instance k to target t is own_k + target_t(size_k). Instances of
one size are alike in all that a target sees of them, so a table of sizes x targets is
enough, and the least bound of an instance is own_k + min_t target_t(size_k).

With the step sums and squares of ``score.deviations`` split into those of the old nodes
(Q_o, D_o, known) and of the target (Q_t, D_t), a column has the change of variance
g = (Q_o + Q_t - (D_o + D_t)^2 / u) / u. Each term is bounded in turn:

- root: sqrt(sigma^2 + g) - sigma >= s g + min(h(a), h(b)) for g in [a, b] and any slope
  s, see ``balance.secants``. Tight at an end of the range.
- mean: (D_o + D_t)^2 <= E, the larger square at the least and the most D_t of any
  target (``_range``). So s g >= s (Q_o - E / u) / u + s Q_t / u for s >= 0, a sum of an
  own part and a target part. Tight when nodes have equal capacity; the loss is at most
  s E / u^2.
- range of g: a = (Q_o - E / u + min Q_t) / u and b = (Q_o + max Q_t) / u, because the
  square of the mean only lowers g.
- reserved memory: it depends on the pair of nodes; the least over all possible rises
  counts (``SecantBounds.reserve``).
- counts: ``MoveChanges`` of each has the least change that is known without the target
  (with the least reserved memory of old nodes), and the least that targets add.

Both parts are kept from move to move. After a move the parts of touched nodes and of
the instances there are computed again; all other bounds stay valid for the moments of
the secants and are lowered by one number, the slack. All bounds are computed again with
new secants when the slack makes too many moves look good. Tests:
test/py/unit/decisions/htools/balance/test_bound_terms.py.
"""

from typing import Final

import numpy as np

from ganeti.decisions.htools.balance.secants import SecantBounds, SizeDeltas
from ganeti.decisions.htools.balance.targets import RefinedBounds, Targets
from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules.move_constraints import (
    ROLE_CHANGES,
    MoveArrays,
    is_permitted,
    permitted_kinds,
)
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score.deviations import DeviationMetrics
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state.amounts import Flags, Floats, Ints

#: Reserved memory of nodes after a move, in MiB.
Reserved = tuple[Floats | Ints, ...]

_NOWHERE: Final = -2
#: Cost of new bounds per pair of size and target, and per kind of move of an
#: instance. The unit is one look at a pair; rough numbers are enough.
_PER_PAIR: Final = 6
_PER_MOVE: Final = 40
#: Cost of one estimate in the same unit.
_PER_CHANGE: Final = 30


class MoveBounds:
    """Lower bounds of score changes for the state of an estimator.

    ``refresh`` must be called after the state and the estimator changed.

    Attributes:
        kinds: kinds of moves with targets that some instance may have.
        table: bounds by kind and instance over all targets; the last row has those of
            moves without a target, infinite if there are none.
        rows, swaps: the table without its last row, and this row.
        target: possible targets in the order of the columns of ``pairs``.
        slack: by how much bounds are lower than bounds made with the present moments.
    """

    def __init__(self, estimator: MoveEstimator, inst: Ints, target: Ints) -> None:
        self._estimator = estimator
        self._state = estimator.state
        self._inst = inst
        every = permitted_kinds(inst, estimator.move_rules)
        self._can_swap = MoveKind.FAILOVER in every
        self.kinds = tuple(sorted(every - {MoveKind.FAILOVER}))
        self._size, sample = _sizes(estimator, inst)
        roles = sorted({ROLE_CHANGES[kind].target for kind in self.kinds})
        self._targets = Targets(estimator, sample, target, roles)
        self.target = self._targets.target
        metrics, more = estimator.metrics, estimator.metrics.more
        self._alike = SizeDeltas(
            {role: metrics.gain["", role][sample] for role in roles},
            {role: more["", role][sample] for role in roles if more},
            estimator.move_rules.own_reserve[sample],
        )
        self._ranges = {
            role: _range(metrics, self._alike, self.target, role) for role in roles
        }
        self._row: Ints = np.full(len(self._state.instances), NONE)
        self._row[inst] = np.arange(len(inst))
        self._live = np.ones(len(inst), np.bool_)
        shape = (len(self.kinds), len(inst))
        self._own: Floats = np.full(shape, np.inf)
        self._strict: Flags = np.ones(shape, np.bool_)
        self._partner: Ints = np.zeros(shape, np.int64)
        self._swap: Floats = np.full(len(inst), np.inf)
        self.table: Floats = np.full((len(self.kinds) + 1, len(inst)), np.inf)
        self.rows, self.swaps = self.table[:-1], self.table[-1]
        # Refreshing pays until estimates in vain have cost as much as new bounds.
        tables = len(roles) * len(sample) * len(target)
        self._price = _PER_PAIR * tables + _PER_MOVE * self._own.size
        self.slack = 0.0
        self._usual = self._spent = self._debt = 0
        self._refined = RefinedBounds(estimator, self.kinds, inst, self.target)
        self._begin()

    def _begin(self) -> None:
        """Compute all bounds again, with new secants."""
        self._usual = self._spent = self._debt = 0
        if not len(self._inst) or not len(self.target):
            return
        self._secants = SecantBounds(self._estimator.metrics, self._alike, self.target)
        self._targets.fill(self._secants)
        self._refined.begin(self._secants)
        self._renew(np.arange(len(self._inst)))
        self._add_up()

    def refresh(self, nodes: Ints) -> None:
        """Update the bounds after nodes changed."""
        if not len(self._inst) or not len(self.target):
            return
        columns = self._targets.columns(nodes)
        self._targets.judge(columns)
        # Fresh bounds leave some pairs open too: only the excess is owed.
        self._usual = self._usual or self._spent
        self._debt += max(0, self._spent - self._usual)
        self._spent = 0
        reached = self._secants.take(nodes, self.target[columns])
        price = self._price + _PER_CHANGE * self._refined.count * len(self.target)
        if not reached or self._debt > price:
            self._begin()
            return
        rows = self._on(nodes)
        self._renew(rows)
        self._targets.take(columns, loose=not self._strict.all())
        self._refined.drop(rows)
        self._refined.take(columns)
        self._add_up()

    def _on(self, nodes: Ints) -> Ints:
        """List the rows of instances on some nodes, and of others that they concern."""
        state = self._state
        on = {i for n in nodes.tolist() for i in state.primaries[n]}
        on |= {i for n in nodes.tolist() for i in state.secondaries[n]}
        rows = self._row[sorted(on)]
        rows = rows[rows != NONE]
        for changes in self._estimator.counts.values():
            outdated = changes.outdated(self._inst)
            if outdated is not None:
                rows = np.union1d(rows, np.nonzero(outdated)[0])
        return np.asarray(rows)

    def allow(self, inst: int, live: bool) -> None:
        """Set whether an instance may move; call before ``refresh`` of its nodes."""
        self._live[self._row[inst]] = live

    def pairs(self, kind: MoveKind, rows: Ints) -> Floats:
        """Return the bounds of one kind for some instances and all targets."""
        row = self.kinds.index(kind)
        part = self._targets.pairs(
            ROLE_CHANGES[kind].target,
            self._size[rows],
            self._partner[row, rows],
            self._strict[row, rows],
        )
        part += self._own[row, rows][:, None]
        self._refined.put(row, rows, part)
        part -= self.slack
        return part

    def below(self, kind: MoveKind, rows: Ints, limit: float) -> tuple[Ints, Ints]:
        """List pairs with bounds up to a limit: places in ``rows``, and columns."""
        low = self.pairs(kind, rows) <= limit
        counts = np.count_nonzero(low, axis=1)
        places = self._refined.ask(self.kinds.index(kind), rows, counts)
        if len(places):
            self.slack = max(self.slack, self._secants.slack())
            low[places] = self.pairs(kind, rows[places]) <= limit
        at, column = np.nonzero(low)
        self._spent += low.size + _PER_CHANGE * len(at)
        return at, column

    def _renew(self, rows: Ints) -> None:
        """Compute the own part of some instances again."""
        inst, nowhere = self._inst[rows], np.full(len(rows), _NOWHERE)
        rules = self._estimator.move_rules
        moves = [rules.move(kind, inst, nowhere) for kind in self.kinds]
        if moves:
            self._own[:, rows] = own = self._of_instances(moves, rows)
            strict = np.array([rules.is_strict(move) for move in moves])
            # An infinite own part makes the rules of targets irrelevant.
            self._strict[:, rows] = strict | np.isinf(own)
            self._partner[:, rows] = [self._partners(move) for move in moves]
        if self._can_swap:
            self._swap[rows] = self._of_swaps(rows)

    def _add_up(self) -> None:
        """Add the least target part to the own parts of all instances."""
        for row, kind in enumerate(self.kinds):
            least = self._targets.least(
                ROLE_CHANGES[kind].target,
                self._size,
                self._partner[row],
                self._strict[row],
            )
            np.add(self._own[row], least, out=self.rows[row])
        self._refined.put_least(self.rows)
        self.slack = self._secants.slack()
        self.rows -= self.slack
        np.subtract(self._swap, self.slack, out=self.swaps)

    # The own part
    def _of_swaps(self, rows: Ints) -> Floats:
        """Return the changes by moves without a target, with the secants' moments."""
        change, gains = self._estimator.from_moments(
            self._secants.moments,
            MoveKind.FAILOVER,
            self._inst[rows],
            np.full(len(rows), NONE),
        )
        legal = np.isfinite(change) & self._live[rows]
        self._secants.reach_over(gains[legal], gains[legal])
        return np.where(legal, change, np.inf)

    def _of_instances(self, moves: list[MoveArrays], rows: Ints) -> Floats:
        """Return the own part of bounds: kinds x instances."""
        estimator, rules, secants = (
            self._estimator,
            self._estimator.move_rules,
            self._secants,
        )
        reserved = [rules.least_reserved(move) for move in moves]
        pairs = list(zip(moves, reserved, strict=True))
        with np.errstate(invalid="ignore"):
            legal: Flags = np.array(
                [
                    is_permitted(move, rules) & rules.legal_before(move, kept)
                    for move, kept in pairs
                ]
            )
        legal &= self._live[rows]
        change: Floats = np.array(
            [
                np.broadcast_to(estimator.counted_before(move, kept), len(rows))
                for move, kept in pairs
            ]
        )
        size = self._size[rows]
        low, high = self._squares(moves, size)
        kept, low[..., -1], high[..., -1], mean = self._kept(moves, reserved, size)
        change += kept
        roles = [move.ends.target for move in moves]
        change += secants.below(roles, size, low, high, legal)
        # reserve() has the linear part of this column but for the mean.
        low[..., -1] = -mean
        change += (secants.slope[size] * low).sum(axis=-1) / estimator.metrics.count
        return np.where(legal, change, np.inf)

    def _squares(self, moves: list[MoveArrays], size: Ints) -> tuple[Floats, Floats]:
        """Return the least and the most that old nodes add to sums of squares.

        The least is Q_o - E / u, the most Q_o, see the module.
        """
        metrics, far = self._estimator.metrics, self._secants.moments.deviation
        shape = (len(moves), len(size), len(metrics.weight))
        squares, sums = np.zeros(shape), np.zeros(shape)
        for row, move in enumerate(moves):
            for node, before, after in (
                (move.primary, "p", move.ends.primary),
                (move.secondary, "s", move.ends.secondary),
            ):
                if after in {"=", before}:
                    continue
                step = metrics.step(move.inst, node, before, after)
                squares[row] += step * (2.0 * far[node] + step)
                sums[row] += step
        ranges = [self._ranges[move.ends.target] for move in moves]
        low = sums + np.array([least[size] for least, _most in ranges])
        high = sums + np.array([most[size] for _least, most in ranges])
        # E / u: the square of a sum is largest at an end of its range.
        mean = np.maximum(low * low, high * high) / metrics.count
        return squares - mean, squares

    def _kept(
        self, moves: list[MoveArrays], reserved: list[Reserved], size: Ints
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the least change by the reserved memory of old nodes.

        Returns:
            the change, the least and the most that old nodes add to the sum of squares,
            and the most that the mean takes off it: kinds x instances.
        """
        out: Floats = np.zeros((4, len(moves), len(size)))
        listed = []
        for row, (move, kept) in enumerate(zip(moves, reserved, strict=True)):
            if move.kind == MoveKind.FAILOVER_TO:
                continue
            stays = move.kind == MoveKind.REPLACE_PRIMARY
            listed.append((row, move.secondary, kept[1], stays))
            if move.kind == MoveKind.REPLACE_FAILOVER:
                # Reserves for other primaries stay, so the rise may be less.
                listed.append((row, move.primary, kept[0], True))
        if not listed:
            return out[0], out[1], out[2], out[3]
        metrics = self._estimator.metrics
        own = self._estimator.move_rules.own_reserve[moves[0].inst]
        places, node, least, varies = (
            np.array(each) for each in zip(*listed, strict=True)
        )
        before = self._state.r_mem[node]
        most = np.where(varies[:, None], np.maximum(least, before + own), least)
        rise, limit = least - before, most - before
        far = self._secants.moments.deviation[node, -1]
        inverse = metrics.inverse_memory[node]
        ends = rise * inverse, limit * inverse
        # y (y + 2 delta) is least at y = -delta, most at an end.
        best = np.clip(-far, *ends)
        high = [step * (step + 2.0 * far) for step in ends]
        slope = self._secants.slope[size, -1]
        np.add.at(out[0], places, self._secants.reserve(slope, node, rise, limit))
        np.add.at(out[1], places, best * (best + 2.0 * far))
        np.add.at(out[2], places, np.maximum(*high))
        # No reserve changes by more than the memory of the instance.
        mean = own * metrics.inverse_memory.max()
        out[3, places] = mean * mean / metrics.count
        out[1] -= out[3]
        return out[0], out[1], out[2], out[3]

    def _partners(self, move: MoveArrays) -> Ints:
        """Return the class of the node that instances have besides their target."""
        # Forthcoming instances share no location tags.
        alone = self._estimator.deltas.forthcoming[move.inst]
        if move.kind == MoveKind.FAILOVER_TO:
            return self._targets.partner(move.primary, np.ones_like(alone))
        stays = move.kind in {MoveKind.REPLACE_SECONDARY, MoveKind.REPLACE_FAILOVER}
        node = move.primary if stays else move.secondary
        if move.ends.target == "s":
            alone = alone | self._state.offline[node]
        return self._targets.partner(node, alone)


def _sizes(estimator: MoveEstimator, inst: Ints) -> tuple[Ints, Ints]:
    """Number instances by all that targets see of them; return one of each size."""
    deltas = estimator.deltas
    # Everything that rules and score read of an instance at a target.
    seen = np.concatenate(
        [
            deltas.as_primary[:, inst],
            deltas.as_secondary[:, inst],
            [
                deltas.asked[inst],
                deltas.local[inst],
                deltas.drbd[inst],
                deltas.unknown_spindles[inst],
                deltas.forthcoming[inst],
                *(
                    row
                    for each in estimator.counts.values()
                    for row in each.size_features(inst)
                ),
            ],
            deltas.tags[inst].T,
        ]
    )
    columns = [column.tobytes() for column in np.ascontiguousarray(seen.T)]
    first: dict[bytes, int] = {}
    for at, column in enumerate(columns):
        first.setdefault(column, at)
    number = {column: at for at, column in enumerate(first)}
    size = [number[column] for column in columns]
    return np.array(size, np.int64), inst[list(first.values())]


def _range(
    metrics: DeviationMetrics, alike: SizeDeltas, target: Ints, role: str
) -> tuple[Floats, Floats]:
    """Return the least and the most that sizes change the values of any target."""
    low: Floats = np.zeros(alike.gain[role].shape)
    high = low
    if not len(target):
        return low, high
    scales = [(metrics.inverse[target], alike.gain[role])]
    if metrics.second is not None:
        scales.append((metrics.second[target], alike.more[role]))
    for by, gain in scales:
        # Gains may be negative, so both ends are compared.
        ends = gain * by.min(axis=0), gain * by.max(axis=0)
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
    return low, high
