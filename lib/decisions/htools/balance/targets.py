"""The parts of bounds that depend on the target.

`Targets`: for target t and size k the part is the sum of s Q_t / u
(``SecantBounds.at_targets``), the least cost of the reserved memory, and the least
changes of counts (``MoveChanges.at_target``). It is infinite where the rules forbid the
target to every instance of the size.

Instances of a size are alike in all that a target sees of them, apart from their other
node: location tags that both nodes share count, and tags may forbid migrations. Nodes
that are alike in this form a class, and the other node enters by its class.

`RefinedBounds`: secants lose (B - A)^2 / (4 (sqrt A + sqrt B)^3) between variances A
and B, see ``balance.secants``. Where gains get as small as that, the bounds of the same
instances are in question in every round. For these the change by each target is
computed with the moments of the secants, so that only the slack is lost, and updated
for the few targets that change.
"""

from typing import Final

import numpy as np

from ganeti.decisions.htools.balance.secants import SecantBounds
from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state.amounts import Flags, Floats, Ints

#: Most entries of sizes x classes x classes; above, the least ignores classes.
_MOST: Final = 1 << 21
#: Most targets of a block.
_BLOCK: Final = 32


class _TargetTable:
    """Targets x sizes, and the least of each class of targets and size.

    Targets are cut into blocks, each with targets of one class, and the least of each
    block is kept: when a few targets change, only their blocks are looked through.
    """

    def __init__(self, values: Floats, starts: Ints) -> None:
        self.values = values
        ends = [*starts[1:].tolist(), len(values)]
        cuts = [
            list(range(start, end, _BLOCK))
            for start, end in zip(starts.tolist(), ends, strict=True)
        ]
        self._blocks = [start for part in cuts for start in part]
        self._ends = [*self._blocks[1:], len(values)]
        self._first = np.cumsum([0, *(len(part) for part in cuts[:-1])])
        self._lowest = np.minimum.reduceat(values, self._blocks)
        self.least = np.minimum.reduceat(self._lowest, self._first)

    def take(self, columns: Ints, fresh: Floats) -> None:
        """Replace the values of some targets."""
        self.values[columns] = fresh
        blocks = np.searchsorted(self._blocks, columns, side="right") - 1
        for block in set(blocks.tolist()):
            part = self.values[self._blocks[block] : self._ends[block]]
            part.min(axis=0, out=self._lowest[block])
        np.minimum.reduceat(self._lowest, self._first, out=self.least)


class Targets:
    """The target part of bounds; ``fill`` must be called first.

    Attributes:
        target: nodes that may be targets, in the order of columns.
    """

    def __init__(
        self, estimator: MoveEstimator, sample: Ints, target: Ints, roles: list[str]
    ) -> None:
        """Prepare for one instance of each size, for roles that targets may get."""
        self._estimator, self._sample, self._roles = estimator, sample, roles
        self._find_classes(target)
        self._column: Ints = np.full(estimator.state.size, -1)
        self._column[self.target] = np.arange(len(target))
        shape = (len(sample), len(target))
        self._fits = {role: np.zeros(shape, np.bool_) for role in roles}
        #: By role: weighted least changes of counts.
        self._counted = {role: np.zeros(shape) for role in roles}
        self._kept, self._kept_at = np.unique(
            estimator.move_rules.own_reserve[sample], return_inverse=True
        )
        self._kept_one = np.unique(self._kept_at, return_index=True)[1]
        force = estimator.options.force
        some_offline = bool(estimator.state.offline.any())
        #: Whether soft rules count: the cases that occur among the instances.
        self._stricts = (False,) if force else (True, False)[: 1 + some_offline]
        self._tables: dict[tuple[str, bool], _TargetTable] = {}
        self._least: dict[tuple[str, bool], Floats] = {}
        #: Targets whose parts without soft rules are out of date.
        self._late: Flags = np.zeros(len(self.target), np.bool_)
        self.judge(np.arange(len(target)))

    def _find_classes(self, target: Ints) -> None:
        """Number nodes by their tags, and sort targets by class."""
        state = self._estimator.state
        every, may = self._estimator.counts.values(), state.may_migrate
        features = [each.node_features() for each in every]
        tags = [each for each in features if each is not None]
        if may is not None:
            tags += [may.astype(np.int64), may.T.astype(np.int64)]
        kinds, first, numbers = np.unique(
            # A column of zeros: there may be no tags at all.
            np.column_stack([np.zeros(state.size, np.int64), *tags]),
            axis=0,
            return_index=True,
            return_inverse=True,
        )
        self._class: Ints = numbers.reshape(-1)
        self._classes = len(kinds)
        self.target = target[np.argsort(self._class[target], kind="stable")]
        there, self._starts, self._column_class = np.unique(
            self._class[self.target], return_index=True, return_inverse=True
        )
        common = self._estimator.counted_by_link(first, first[there])
        #: By role: classes of the other node x classes of targets. The second half of
        #: the rows is for instances whose common tags do not count.
        links = np.vstack([common, np.zeros_like(common)])
        self._links = {"s": links, "p": links}
        if may is not None:
            barred = np.where(may[np.ix_(first, first[there])], 0.0, np.inf)
            self._links["p"] = links + np.vstack([barred, barred])
        self._linked = any(link.any() for link in self._links.values())
        self._apart = self._linked and len(self._sample) * links.size <= _MOST

    def partner(self, node: Ints, alone: Flags) -> Ints:
        """Return the class of other nodes; a class of its own for ``alone``."""
        return self._class[node] + self._classes * alone

    def columns(self, nodes: Ints) -> Ints:
        """List the columns of those of some nodes that may be targets."""
        columns = self._column[nodes]
        return columns[columns >= 0]

    def judge(self, columns: Ints) -> None:
        """Apply the strict rules to targets, as far as instances of a size are alike.

        A target that fails N+1 already is not refused for N+1.
        """
        estimator = self._estimator
        rules, state = estimator.move_rules, estimator.state
        inst, node = self._sample[:, None], self.target[columns][None, :]
        # FAILOVER_REPLACE stands for all kinds: only role and target matter here.
        strict = np.ones((1, 1), dtype=np.bool_)
        move = rules.move(MoveKind.FAILOVER_REPLACE, inst, node)
        kept = state.r_mem[node]
        if "p" in self._fits:
            self._fits["p"][:, columns] = rules.takes_primary(
                move, node, rules.gain["", "p"], kept, strict
            )
        if "s" in self._fits:
            kept = np.maximum(kept, rules.own_reserve[inst])
            self._fits["s"][:, columns] = rules.takes_secondary(
                move, node, rules.gain["", "s"], kept, strict
            )
        for role, counted in self._counted.items():
            counted[:, columns] = estimator.counted_at(inst, node, role)

    def fill(self, secants: SecantBounds) -> None:
        """Compute all parts, with these secants."""
        self._secants = secants
        every = np.arange(len(self.target))
        self._late[:] = False
        self._tables = {}
        self._least = {}
        for role in self._roles:
            values = self._added(role, every)
            for strict in self._stricts:
                table = _TargetTable(
                    self._as(role, strict, every, values), self._starts
                )
                self._tables[role, strict] = table
                self._least[role, strict] = self._with_partner(role, table.least)

    def take(self, columns: Ints, *, loose: bool) -> None:
        """Update the parts of some targets.

        Unless ``loose``, parts of targets for which soft rules do not count are updated
        later: they must not be used until this is called with ``loose``.
        """
        if len(self._stricts) > 1 and not loose:
            self._late[columns] = True
            self._update(columns, (True,))
            return
        if self._late.any():
            self._late[columns] = True
            columns = np.nonzero(self._late)[0]
            self._late[:] = False
        self._update(columns, self._stricts)

    def _update(self, columns: Ints, stricts: tuple[bool, ...]) -> None:
        if not len(columns):
            return
        for role in self._roles:
            values = self._added(role, columns)
            for strict in stricts:
                table = self._tables[role, strict]
                table.take(columns, self._as(role, strict, columns, values))
                self._least[role, strict] = self._with_partner(role, table.least)

    def _as(self, role: str, strict: bool, columns: Ints, values: Floats) -> Floats:
        """Return targets x sizes, infinite where rules that count forbid the target."""
        if not strict:
            return values.T.copy()
        return np.where(self._fits[role][:, columns], values, np.inf).T.copy()

    def _with_partner(self, role: str, least: Floats) -> Floats:
        """Return the least target part: classes of the other node x sizes."""
        links = self._links[role]
        if self._apart:
            return np.asarray((links[:, :, None] + least).min(axis=1))
        return np.broadcast_to(least.min(axis=0), (len(links), least.shape[1]))

    def least(self, role: str, size: Ints, partner: Ints, strict: Flags) -> Floats:
        """Return the least target part for sizes, other nodes, and strict rules."""
        least = [self._least[role, each][partner, size] for each in self._asked(strict)]
        return least[0] if len(least) == 1 else np.where(strict, *least)

    def _asked(self, strict: Flags) -> tuple[bool, ...]:
        return self._stricts[:1] if strict.all() else self._stricts

    def pairs(self, role: str, size: Ints, partner: Ints, strict: Flags) -> Floats:
        """Return the part of each target: instances x columns."""
        tables = [
            self._tables[role, each].values[:, size].T for each in self._asked(strict)
        ]
        part = tables[0] if len(tables) == 1 else np.where(strict[:, None], *tables)
        if self._linked:
            part = part + self._links[role][partner][:, self._column_class]
        return part

    def _added(self, role: str, columns: Ints) -> Floats:
        """Return the target part without rules: sizes x columns."""
        estimator, secants = self._estimator, self._secants
        state = estimator.state
        node = self.target[columns]
        at = secants.at_targets(role, node)
        at += self._counted[role][:, columns]
        if role == "p":
            return at
        # The reserve rises by at least what the present one does not cover.
        own = self._kept[:, None]
        least = np.maximum(own - state.r_mem[node], 0)
        slope = secants.slope[self._kept_one, -1][:, None]
        at += secants.reserve(slope, node[None, :], least, own)[self._kept_at]
        return at


#: Most changes that are kept (32 MiB).
_MOST_CHANGES: Final = 1 << 22
#: Most changes that are computed at once.
_CHANGE_BLOCK: Final = 1 << 15


class RefinedBounds:
    """Changes by kind and row of an instance: slots x targets.

    Attributes:
        count: slots in use.
    """

    def __init__(
        self,
        estimator: MoveEstimator,
        kinds: tuple[MoveKind, ...],
        inst: Ints,
        target: Ints,
    ) -> None:
        """Prepare for all kinds and instances."""
        self._estimator, self._kinds = estimator, kinds
        self._inst, self._target = inst, target
        self._slot: Ints = np.full((len(kinds), len(inst)), NONE)
        #: Pairs of a row that were in question while it had no slot.
        self._asked: Ints = np.zeros(self._slot.shape, np.int64)
        self._places: Ints = np.zeros((0, 2), np.int64)
        self._changes: Floats = np.zeros((0, len(target)))
        self._least: Floats = np.zeros(0)
        self._secants: SecantBounds | None = None

    @property
    def count(self) -> int:
        """Number of rows that have changes."""
        return len(self._places)

    def begin(self, secants: SecantBounds) -> None:
        """Drop all changes; new ones use the moments of these secants."""
        self._secants = secants
        self._slot.fill(NONE)
        self._asked.fill(0)
        self._keep(np.zeros(0, np.bool_))

    def _keep(self, which: Flags) -> None:
        self._places = self._places[: len(which)][which]
        self._changes = self._changes[: len(which)][which]
        self._least = self._least[: len(which)][which]
        self._slot[self._places[:, 0], self._places[:, 1]] = np.arange(self.count)

    def drop(self, rows: Ints) -> None:
        """Drop the changes of some instances."""
        self._asked[:, rows] = 0
        slots = self._slot[:, rows]
        if (slots == NONE).all():
            return
        which = np.ones(self.count, np.bool_)
        which[slots[slots != NONE]] = False
        self._slot[:, rows] = NONE
        self._keep(which)

    def ask(self, kind: int, rows: Ints, pairs: Ints) -> Ints:
        """Count pairs that are in question; list the places that get changes now."""
        self._asked[kind, rows] += pairs
        # A row pays for its changes once as many pairs as targets were in question.
        ripe = (self._slot[kind, rows] == NONE) & (
            self._asked[kind, rows] >= len(self._target)
        )
        room = max(0, _MOST_CHANGES // len(self._target) - self.count)
        result = np.nonzero(ripe)[0][:room]
        height = max(1, _CHANGE_BLOCK // len(self._target))
        for start in range(0, len(result), height):
            self._add(kind, rows[result[start : start + height]])
        return result

    def _add(self, kind: int, rows: Ints) -> None:
        every = np.arange(len(self._target))
        changes = self._compute(kind, rows, every)
        self._slot[kind, rows] = self.count + np.arange(len(rows))
        places = np.stack([np.full(len(rows), kind), rows], axis=1)
        self._places = np.concatenate([self._places, places])
        self._changes = np.concatenate([self._changes, changes])
        self._least = np.concatenate([self._least, changes.min(axis=1)])

    def _compute(self, kind: int, rows: Ints, columns: Ints) -> Floats:
        if self._secants is None:
            raise ValueError("changes without secants")
        inst, target = self._inst[rows][:, None], self._target[columns][None, :]
        changes, gains = self._estimator.from_moments(
            self._secants.moments, self._kinds[kind], inst, target
        )
        legal = np.isfinite(changes)
        # The slack must cover these changes of variances too.
        self._secants.reach_over(gains[legal], gains[legal])
        return changes

    def take(self, columns: Ints) -> None:
        """Update the changes by some targets."""
        if not self.count or not len(columns):
            return
        for kind in range(len(self._kinds)):
            slots = np.nonzero(self._places[:, 0] == kind)[0]
            if len(slots):
                rows = self._places[slots, 1]
                changes = self._compute(kind, rows, columns)
                self._changes[slots[:, None], columns] = changes
        self._least = self._changes.min(axis=1)

    def put_least(self, bounds: Floats) -> None:
        """Enter the least change of each row into a table of bounds."""
        bounds[self._places[:, 0], self._places[:, 1]] = self._least

    def put(self, kind: int, rows: Ints, pairs: Floats) -> None:
        """Enter the changes of rows into bounds of rows x targets."""
        slots = self._slot[kind, rows]
        known = np.nonzero(slots != NONE)[0]
        if len(known):
            pairs[known] = self._changes[slots[known]]
