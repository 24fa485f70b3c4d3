"""Components of the score that count tags of instances and nodes."""

from collections.abc import Sequence

import numpy as np

from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules.move_constraints import MoveArrays, MoveConstraints
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score.counts import (
    Count,
    FillTables,
    MoveChanges,
    NewInstance,
    Reserved,
)
from ganeti.decisions.htools.state.amounts import ROWS, Flags, Floats, Ints
from ganeti.decisions.htools.state.node_state import ClusterState

_LOCATION = ROWS.index("location")


def _new_primary(move: MoveArrays) -> Ints:
    if move.ends.primary == "=":
        return move.primary
    return move.secondary if move.ends.secondary == "p" else move.target


def _known_primary(move: MoveArrays) -> Ints | None:
    """Return the new primary; None if it is the target, which is not known."""
    return None if move.ends.target == "p" else _new_primary(move)


class RepeatedTags(Count):
    """``pri_tags_score``: exclusion tags that primaries of a node have in common."""

    def value(self, state: ClusterState, up: Ints, _down: Ints, /) -> float:
        """Return the value over the online nodes."""
        return float(state.repeated_tags()[up].sum())

    def on_moves(self, rules: MoveConstraints) -> MoveChanges | None:
        """Return the changes by moves; None without such tags."""
        return _RepeatedTagChanges(rules) if len(rules.state.exclusion_tags) else None

    def as_primary(self, new: NewInstance) -> Floats:
        """Return the change by a new primary on each node."""
        places = new.state.tag_places(new.item)
        if not places:
            return np.zeros(new.state.size)
        # A tag counts if a primary of the node has it already.
        more = (new.state.pri_tags[:, places] > 0).sum(axis=1)
        return np.asarray(more * new.state.online, np.float64)

    def as_secondary(
        self, _new: NewInstance, _first: Ints, _second: Ints, _kept: Floats, /
    ) -> float:
        """Return 0: only primaries count."""
        return 0.0


class _RepeatedTagChanges(MoveChanges):
    def __init__(self, rules: MoveConstraints) -> None:
        self._rules, self._online = rules, rules.state.online

    def change(self, move: MoveArrays, _reserved: Reserved, /) -> Floats:
        return self._between(move, _new_primary(move))

    def before(self, move: MoveArrays, _reserved: Reserved, /) -> Floats:
        return self._between(move, _known_primary(move))

    def _between(self, move: MoveArrays, new: Ints | None) -> Floats:
        # The primary stays, and with it all repetitions.
        if move.ends.primary == "=":
            return np.zeros(1)
        conflicts, old = self._rules.conflicts, move.primary
        change = -(conflicts(move.inst, old, 1) * self._online[old])
        if new is not None:
            change = change + conflicts(move.inst, new, 0) * self._online[new]
        return np.asarray(change, np.float64)

    def at_target(self, inst: Ints, node: Ints, role: str, /) -> Floats:
        if role != "p":
            return np.zeros(1)
        return np.asarray(self._rules.conflicts(inst, node, 0), np.float64)


class LocationTags(Count):
    """``location_score``: tags that both nodes share, and desired ones that lack."""

    def value(self, state: ClusterState, up: Ints, _down: Ints, /) -> float:
        """Return the value over the online nodes."""
        return float(state.location[up].sum())

    def on_moves(self, rules: MoveConstraints) -> MoveChanges | None:
        """Return the changes by moves; None without such tags."""
        located = rules.state.node_places.size or rules.deltas.lacking.any()
        return _LocationChanges(rules) if located else None

    def as_primary(self, new: NewInstance) -> Floats:
        """Return the change by a new primary on each node."""
        real = new.state.online & (not new.item.forthcoming)
        return np.asarray(new.state.wanted_places(new.item) * real, np.float64)

    def as_secondary(
        self, new: NewInstance, primaries: Ints, secondaries: Ints, _kept: Floats, /
    ) -> Floats | float:
        """Return the tags that both nodes share."""
        if new.item.forthcoming:
            return 0.0
        common = new.state.common_places[np.ix_(primaries, secondaries)]
        return np.asarray(common * new.common_on[primaries][:, None], np.float64)

    def is_filled(self, tables: FillTables) -> bool:
        """Return whether pairs of nodes share location tags."""
        return tables.has_places

    def filled(self, tables: FillTables, up: Ints) -> float:
        """Return the present value."""
        return float(tables.amounts[_LOCATION, up].sum())

    def by_pair(self, tables: FillTables) -> Floats:
        """Return the location tags that pairs share."""
        return np.asarray(tables.state.common_places, np.float64)

    def at_places(
        self, state: ClusterState, wanted: Sequence[frozenset[str]], places: Ints
    ) -> Floats | None:
        """Return how many desired tags each place lacks."""
        if not any(wanted):
            return None
        rows = {tags: state.lacking(tags)[places] for tags in set(wanted)}
        return np.array([rows[tags] for tags in wanted], np.float64)


class _LocationChanges(MoveChanges):
    def __init__(self, rules: MoveConstraints) -> None:
        self._state, self._deltas = rules.state, rules.deltas
        self._online = rules.state.online

    def change(self, move: MoveArrays, _reserved: Reserved, /) -> Floats:
        new_p, common = _new_primary(move), self._deltas.common(move.inst)
        after = common
        # Swapped nodes share the same tags; a single node shares none.
        if move.kind not in {MoveKind.FAILOVER, MoveKind.FAILOVER_TO}:
            new_s = {
                MoveKind.REPLACE_SECONDARY: move.target,
                MoveKind.REPLACE_FAILOVER: move.primary,
                MoveKind.REPLACE_PRIMARY: move.secondary,
                MoveKind.FAILOVER_REPLACE: move.target,
            }[move.kind]
            after = self._state.common_places[new_p, new_s]
        new = (after + self._lacking(move.inst, new_p)) * self._online[new_p]
        return self._real(move.inst, new - self._old(move, common))

    def before(self, move: MoveArrays, _reserved: Reserved, /) -> Floats:
        new_p, common = _known_primary(move), self._deltas.common(move.inst)
        change = -self._old(move, common)
        if new_p is not None:
            change = change + self._lacking(move.inst, new_p) * self._online[new_p]
        if move.kind == MoveKind.FAILOVER_TO:
            change = change + common
        return self._real(move.inst, change)

    def _old(self, move: MoveArrays, common: Ints) -> Ints:
        lacking = self._lacking(move.inst, move.primary)
        return np.asarray((common + lacking) * self._online[move.primary])

    def _lacking(self, inst: Ints, node: Ints) -> Ints:
        return np.asarray(self._deltas.lacking[self._deltas.desired[inst], node])

    def _real(self, inst: Ints, change: Ints) -> Floats:
        return np.where(self._deltas.forthcoming[inst], 0.0, change)

    def at_target(self, inst: Ints, node: Ints, role: str, /) -> Floats:
        if role != "p":
            return np.zeros(1)
        return self._real(inst, self._lacking(inst, node))

    def size_features(self, inst: Ints) -> list[Ints]:
        return [self._deltas.desired[inst]]

    def node_features(self) -> Ints:
        return np.asarray(self._state.node_places)

    def link(self, other: Ints, target: Ints) -> Floats:
        common = self._state.common_places[np.ix_(other, target)]
        return np.asarray(common, np.float64)


class RepeatedPairs(Count):
    """``location_exclusion_score``: (location, exclusion) tag pairs that repeat."""

    def value(self, state: ClusterState, up: Ints, _down: Ints, /) -> float:
        """Return the value over the online nodes."""
        if not state.node_places.size or not state.pri_tags.size:
            return 0.0
        # The first primary of a pair is no repetition.
        return float(np.maximum(tag_pairs(state, up) - 1, 0).sum())

    def on_moves(self, rules: MoveConstraints) -> MoveChanges | None:
        """Return the changes by moves; None without such tags."""
        state = rules.state
        exists = len(state.exclusion_tags) and state.node_places.size
        return _RepeatedPairChanges(rules) if exists else None

    def as_primary(self, new: NewInstance) -> Floats:
        """Return the change by a new primary on each node."""
        state, places = new.state, new.state.tag_places(new.item)
        if not places or not state.node_places.size or new.item.forthcoming:
            return np.zeros(state.size)
        pairs = tag_pairs(state, new.up)
        # Each location tag of the node pairs with each tag of the instance.
        doubled = (pairs[:, places] > 0).astype(np.int64).sum(axis=1)
        return np.asarray((state.node_places @ doubled) * state.online, np.float64)

    def as_secondary(
        self, _new: NewInstance, _first: Ints, _second: Ints, _kept: Floats, /
    ) -> float:
        """Return 0: only primaries count."""
        return 0.0


def tag_pairs(state: ClusterState, up: Ints) -> Ints:
    """Return [location tag, exclusion tag] -> primaries online that have both.

    Forthcoming instances do not count here, although they count for ``pri_tags_score``.
    """
    return np.asarray(state.node_places[up].T @ state.present_tags[up])


class _RepeatedPairChanges(MoveChanges):
    def __init__(self, rules: MoveConstraints) -> None:
        self._state, self._deltas = state, _deltas = rules.state, rules.deltas
        online = np.nonzero(state.online)[0]
        self._places = (state.node_places > 0) & state.online[:, None]
        self._present = state.present_tags.copy()
        #: Exclusion tag x location tag: primaries on online nodes that have both.
        self._pairs: Ints = tag_pairs(state, online).T.copy()
        #: Exclusion tags whose pairs changed in the last refresh.
        self._retagged: Ints = np.zeros(0, np.int64)

    def refresh(self, nodes: Ints) -> None:
        change = self._state.present_tags[nodes] - self._present[nodes]
        self._present[nodes] += change
        self._retagged = np.nonzero(change.any(axis=0))[0]
        change = change[:, self._retagged]
        self._pairs[self._retagged] += change.T @ self._places[nodes]

    def outdated(self, inst: Ints) -> Flags | None:
        if not len(self._retagged):
            return None
        tags = self._deltas.tags[inst]
        return np.asarray(np.isin(tags, self._retagged).any(axis=1))

    def change(self, move: MoveArrays, _reserved: Reserved, /) -> Floats:
        return self._between(move, _new_primary(move))

    def before(self, move: MoveArrays, _reserved: Reserved, /) -> Floats:
        # An unknown primary adds at least 0 pairs.
        return self._between(move, _known_primary(move))

    def _between(self, move: MoveArrays, new_p: Ints | None) -> Floats:
        result: Floats = np.zeros(1)
        if move.ends.primary == "=":
            return result
        deltas, inst = self._deltas, move.inst
        old = self._places[move.primary]
        removed, added = old, None
        if new_p is not None:
            new = self._places[new_p]
            removed, added = old & ~new, new & ~old
        for tags in deltas.tags.T:
            tag = tags[inst]
            counts = self._pairs[tag]
            # A pair counts from its second primary on.
            change = -(removed & (counts > 1)).sum(axis=-1)
            if added is not None:
                change = change + (added & (counts >= 1)).sum(axis=-1)
            result = result + np.where(tag != NONE, change, 0)
        return np.where(deltas.forthcoming[inst], 0.0, result)

    def at_target(self, _inst: Ints, _node: Ints, _role: str, /) -> Floats:
        return np.zeros(1)
