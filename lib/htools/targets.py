"""What target nodes add to bounds of moves, for each size of instances.

Instances of a size are alike in all that a target sees of them, apart from the other
node they have afterwards: location tags that both nodes have in common count. Nodes
with the same location tags make a class.
"""

from typing import Final

import numpy as np

from ganeti.htools import grid_score as score
from ganeti.htools.candidates import Evaluator
from ganeti.htools.chords import Chords
from ganeti.htools.effects import Bools, Floats, Ints
from ganeti.htools.moves import Kind

#: Most entries of sizes x classes x classes; above, the least in common is taken as 0.
_MOST: Final = 1 << 21


class _Table:
    """Sizes x targets, and the least of each size and class of targets."""

    def __init__(self, values: Floats, starts: Ints, column_class: Ints) -> None:
        self.values = values
        self._starts, self._class = starts, column_class
        self.least = self._lowest(values)

    def _lowest(self, values: Floats) -> Floats:
        if len(self._starts) == 1:
            return np.asarray(values.min(axis=1, keepdims=True))
        return np.minimum.reduceat(values, self._starts, axis=1)

    def take(self, columns: Ints, fresh: Floats) -> Ints:
        """Replace some columns; tell the sizes whose least changed."""
        classes = self._class[columns]
        old, before = self.values[:, columns], self.least[:, classes]
        self.values[:, columns] = fresh
        changed = np.nonzero(((fresh < before) | (old <= before)).any(axis=1))[0]
        self.least[changed] = self._lowest(self.values[changed])
        return changed


class Targets:
    """The targets' part of bounds; ``fill`` before anything else.

    Attributes:
        target: nodes that may be targets, in the order of columns.
    """

    def __init__(
        self, evaluator: Evaluator, sample: Ints, target: Ints, roles: list[str]
    ) -> None:
        """Prepare for one instance of each size, for roles that targets may get."""
        self._evaluator, self._sample, self._roles = evaluator, sample, roles
        self._find_classes(target)
        self._column: Ints = np.full(evaluator.state.size, -1)
        self._column[self.target] = np.arange(len(target))
        shape = (len(sample), len(target))
        self._fits = {role: np.zeros(shape, np.bool_) for role in roles}
        self._conflicts = np.zeros(shape if evaluator.tagged else (len(sample), 1))
        self._kept, self._kept_at = np.unique(
            evaluator.legality.own_reserve[sample], return_inverse=True
        )
        self._kept_one = np.unique(self._kept_at, return_index=True)[1]
        force = evaluator.options.force
        some_offline = bool(evaluator.state.offline.any())
        #: Whether soft rules count: of the kinds of instances that there are.
        self._stricts = (False,) if force else (True, False)[: 1 + some_offline]
        self._tables: dict[tuple[str, bool], _Table] = {}
        self._least: dict[tuple[str, bool], Floats] = {}
        #: Columns that were not taken over where soft rules do not count.
        self._late: Bools = np.zeros(len(self.target), np.bool_)
        self.judge(np.arange(len(target)))

    def _find_classes(self, target: Ints) -> None:
        """Number nodes by their location tags, and put targets in this order."""
        places = self._evaluator.state.node_places
        self._class: Ints = np.zeros(len(places), np.int64)
        common: Ints = np.zeros((1, 1), np.int64)
        if places.size:
            kinds, found = np.unique(places, axis=0, return_inverse=True)
            self._class, common = found.reshape(-1), kinds @ kinds.T
        self.target = target[np.argsort(self._class[target], kind="stable")]
        there, self._starts, self._column_class = np.unique(
            self._class[self.target], return_index=True, return_inverse=True
        )
        #: Class of the other node (none in the last row) x class of columns.
        self._common = np.vstack([common, np.zeros_like(common[:1])])[:, there]
        entries = len(self._sample) * self._common.size
        self._apart = bool(self._common.any()) and entries <= _MOST

    def partner(self, node: Ints, alone: Bools) -> Ints:
        """Number the other nodes of instances, one number for all who are alone."""
        if not self._evaluator.located:
            return np.zeros_like(node)
        return np.where(alone, len(self._common) - 1, self._class[node])

    def columns(self, nodes: Ints) -> Ints:
        """List the columns of those of some nodes that may be targets."""
        found = self._column[nodes]
        return found[found >= 0]

    def judge(self, columns: Ints) -> None:
        """Judge targets by the strict rules, as far as instances of a size are alike.

        A target that fails its failovers may take what it could not otherwise.
        """
        found = self._evaluator
        rules, state = found.legality, found.state
        inst, node = self._sample[:, None], self.target[columns][None, :]
        strict = np.ones((1, 1), dtype=np.bool_)
        move = rules.move(Kind.FAILOVER_REPLACE, inst, node)
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
        if found.tagged:
            self._conflicts[:, columns] = rules.conflicts(inst, node, 0)

    def fill(self, chords: Chords) -> None:
        """Make everything anew, with these chords."""
        self._chords = chords
        every = np.arange(len(self.target))
        self._late[:] = False
        self._tables = {}
        self._least = {}
        for role in self._roles:
            values = self._added(role, every)
            for strict in self._stricts:
                table = _Table(
                    self._as(role, strict, every, values),
                    self._starts,
                    self._column_class,
                )
                self._tables[role, strict] = table
                self._least[role, strict] = self._with_partner(table.least)

    def take(self, columns: Ints, *, loose: bool) -> None:
        """Take over changes of some targets.

        Unless ``loose``, nothing will be asked of targets for which soft rules do not
        count, until this is called with it again.
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
                fresh = self._as(role, strict, columns, values)
                changed = table.take(columns, fresh)
                self._least[role, strict][changed] = self._with_partner(
                    table.least[changed]
                )

    def _as(self, role: str, strict: bool, columns: Ints, values: Floats) -> Floats:
        if not strict:
            return values.copy()
        return np.where(self._fits[role][:, columns], values, np.inf)

    def _with_partner(self, least: Floats) -> Floats:
        """Give sizes x classes of the other node."""
        if self._apart:
            both = least[:, None, :] + self._common[None, :, :]
            return np.asarray(both.min(axis=2))
        lowest = least.min(axis=1, keepdims=True)
        return np.broadcast_to(lowest, (len(least), len(self._common))).copy()

    def least(self, role: str, size: Ints, partner: Ints, strict: Bools) -> Floats:
        """Give the least that targets add for sizes, partners, and strict rules."""
        found = [self._least[role, each][size, partner] for each in self._asked(strict)]
        return found[0] if len(found) == 1 else np.where(strict, *found)

    def _asked(self, strict: Bools) -> tuple[bool, ...]:
        return self._stricts[:1] if strict.all() else self._stricts

    def pairs(self, role: str, size: Ints, partner: Ints, strict: Bools) -> Floats:
        """Give what each target adds: instances x columns."""
        found = [self._tables[role, each].values[size] for each in self._asked(strict)]
        part = found[0] if len(found) == 1 else np.where(strict[:, None], *found)
        if self._common.any():
            part = part + self._common[partner][:, self._column_class]
        return part

    def _added(self, role: str, columns: Ints) -> Floats:
        """Give the targets' part of bounds: sizes x columns."""
        found, chords = self._evaluator, self._chords
        state, effects = found.state, found.effects
        node = self.target[columns]
        at = chords.at_targets(role, node)
        real = ~effects.forthcoming[self._sample][:, None]
        at += real & state.fails_n1[node]
        if role == "p":
            if found.tagged:
                at += score.WEIGHT["pri_tags_score"] * self._conflicts[:, columns]
            if found.located:
                at += real * effects.lacking[effects.wishes[self._sample]][:, node]
            return at
        own = self._kept[:, None]
        least = np.maximum(own - state.r_mem[node], 0)
        slope = chords.slope[self._kept_one, -1][:, None]
        at += chords.reserve(slope, node[None, :], least, own)[self._kept_at]
        return at
