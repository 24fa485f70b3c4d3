"""Scores of many possible moves at once.

An ``Evaluator`` estimates, for arrays of instances and target nodes, by how much each
kind of move would change the score. A move touches three nodes at most, so sums and
sums of squares are corrected instead of computed anew: constant work for each move.
Estimates are good to about ten digits; ``balance`` computes the best ones exactly.
"""

import dataclasses
from typing import Final

import numpy as np

from ganeti.htools import score
from ganeti.htools.model import EXTERNAL_TEMPLATES, NONE
from ganeti.htools.moves import Kind
from ganeti.htools.state import Bools, Floats, Ints, Row, State

#: Kinds that have a target node.
TARGET_KINDS: Final = tuple(kind for kind in Kind if kind != Kind.FAILOVER)


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What moves a plan may have.

    ``restricted`` forbids to migrate off nodes online; ``force`` ignores soft errors;
    ``evacuate`` moves only what has a node offline.
    """

    disk_moves: bool = True
    instance_moves: bool = True
    restricted: bool = False
    force: bool = False
    evacuate: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Ends:
    """What a kind of move makes of the old nodes and of the target.

    Roles: "p" primary, "s" secondary, "" nothing, "=" as before.
    """

    primary: str
    secondary: str
    target: str


_ENDS: Final = {
    Kind.FAILOVER: _Ends("s", "p", ""),
    Kind.FAILOVER_TO: _Ends("", "=", "p"),
    Kind.REPLACE_SECONDARY: _Ends("=", "", "s"),
    Kind.REPLACE_FAILOVER: _Ends("s", "", "p"),
    Kind.REPLACE_PRIMARY: _Ends("", "=", "p"),
    Kind.FAILOVER_REPLACE: _Ends("", "p", "s"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Spreads:
    """Numbers of all spreads, in one order.

    ``drift`` is by how much a change of a variance differs at most, per change of the
    mean.
    """

    variances: Floats
    means: Floats
    weights: Floats
    drift: Floats


@dataclasses.dataclass(slots=True)
class Part:
    """A spread component: weight, and how instances and nodes enter into it.

    ``inverse`` is 1 / capacity of nodes, 0 for those offline; ``second`` likewise for
    spindles where nodes have exclusive storage. ``reach`` is by how much a move can
    change the sum at most. ``deviation`` is from the mean.
    """

    weight: float
    name: str
    row: Row
    inverse: Floats
    second: Floats | None
    reach: float
    deviation: Floats
    mean: float = 0.0
    variance: float = 0.0


@dataclasses.dataclass(slots=True)
class Move:
    """Arrays of one evaluation: instances, their nodes, targets, the kind's ends."""

    kind: Kind
    ends: _Ends
    inst: Ints
    primary: Ints
    secondary: Ints
    target: Ints


class Evaluator:
    """Estimates of score changes for the state it was given.

    ``refresh`` must be called after the state changed.
    """

    def __init__(self, state: State, options: Options) -> None:
        self.state = state
        self.options = options
        fixed = state.fixed
        instances = fixed.cluster.instances
        self._external = np.array(
            [inst.template in EXTERNAL_TEMPLATES for inst in instances], dtype=np.bool_
        )
        self._exclusive = bool(fixed.exclusive.any())
        self._forthcoming = bool(fixed.forthcoming.any())
        self._restricting_tags = not bool(fixed.tags.migration.all())
        self._located = bool(len(fixed.tags.location) or fixed.tags.lacking.any())
        self._reserved = np.where(fixed.forthcoming, 0, fixed.reserved)
        location = fixed.tags.location.astype(np.int64)
        self._common = location.T @ location
        p, s = fixed.as_primary, fixed.as_secondary
        self._gain = {
            ("", "p"): p,
            ("", "s"): s,
            ("p", ""): -p,
            ("p", "s"): s - p,
            ("s", ""): -s,
            ("s", "p"): p - s,
        }
        self._inverse_memory = self._inverses(fixed.total_memory)
        self._reserved_reach = (
            3.0
            * float(self._reserved.max(initial=0))
            * float(self._inverse_memory.max(initial=0.0))
        )
        self.parts = self._make_parts()
        self.refresh()

    @property
    def local_only(self) -> bool:
        """Whether an estimate depends on its own nodes and the spreads only."""
        tags = self.state.fixed.tags
        return not (len(tags.location) and len(tags.names))

    def _inverses(self, capacity: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.where(self.state.fixed.online, 1.0 / capacity, 0.0)

    def _make_parts(self) -> list[Part]:
        """Describe the spread components, equal ones merged."""
        fixed, amounts = self.state.fixed, self.state.amounts
        nothing = np.zeros(0)
        parts: list[Part] = []
        for name, row in score.SPREAD_ROWS.items():
            inverse, second = self._capacity(row)
            twin = next(
                (part for part in parts if self._equal(part, row, inverse)), None
            )
            if twin is not None:
                twin.weight += score.WEIGHTS[name]
                continue
            moving = amounts[row].any() or fixed.as_primary[row].any()
            if moving:
                reach = self._reach(row, inverse)
                if second is not None:
                    reach += self._reach(Row.FREE_SPINDLES, second)
                weight = score.WEIGHTS[name]
                parts.append(Part(weight, name, row, inverse, second, reach, nothing))
        return parts

    def _reach(self, row: Row, inverse: Floats) -> float:
        fixed = self.state.fixed
        gains = (fixed.as_primary[row], fixed.as_secondary[row])
        largest = max(float(np.abs(gain).max(initial=0.0)) for gain in gains)
        return 3.0 * largest * float(inverse.max(initial=0.0))

    def _capacity(self, row: Row) -> tuple[Floats, Floats | None]:
        fixed = self.state.fixed
        if row in {Row.MEMORY, Row.ALL_MEMORY}:
            return self._inverse_memory, None
        if row in {Row.CPU, Row.ALL_CPU}:
            return self._inverses(fixed.cpus * fixed.cpu_speed), None
        if row in {Row.SPINDLES, Row.ALL_SPINDLES}:
            inverse = self._inverses(fixed.high_spindles)
            return np.where(fixed.exclusive, 0.0, inverse), None
        if row in {Row.DISK, Row.ALL_DISK}:
            inverse = self._inverses(fixed.total_disk)
            inverse = np.where(np.isfinite(inverse), inverse, 0.0)
            if not self._exclusive:
                return inverse, None
            second = self._inverses(fixed.spindle_count)
            return (
                np.where(fixed.exclusive, 0.0, inverse),
                np.where(fixed.exclusive, second, 0.0),
            )
        return self._inverses(np.ones(len(fixed.online))), None

    def _equal(self, part: Part, row: Row, inverse: Floats) -> bool:
        """Tell whether a row is and will stay the same as that of a part."""
        fixed, amounts = self.state.fixed, self.state.amounts
        tables = (amounts, fixed.as_primary, fixed.as_secondary)
        pairs = [(part.row, row)]
        if part.second is not None:
            pairs.append((Row.FREE_SPINDLES, Row.ALL_FREE_SPINDLES))
        return bool(np.array_equal(part.inverse, inverse)) and all(
            np.array_equal(table[a], table[b]) for a, b in pairs for table in tables
        )

    def refresh(self) -> None:
        """Take over changes of the state."""
        state, fixed = self.state, self.state.fixed
        online = fixed.online
        self._online_count = int(online.sum())
        self._reserved_second = np.zeros(len(online), dtype=np.int64)
        if len(online) > 1:
            self._reserved_second = np.partition(state.peers, -2, axis=1)[:, -2]
        for part in self.parts:
            with np.errstate(divide="ignore", invalid="ignore"):
                values = score.share(fixed, part.name, state.amounts)
            part.deviation, part.mean, part.variance = self._deviation(values)
        shares = state.reserved * self._inverse_memory
        found = self._deviation(shares)
        self._reserved_deviation, self._reserved_mean, self._reserved_variance = found
        self._counts = state.count_primary + state.count_secondary

    def _deviation(self, values: Floats) -> tuple[Floats, float, float]:
        """Give distances from the mean (0 for offline nodes), mean and variance."""
        online = self.state.fixed.online
        mean = float(values[online].sum() / self._online_count)
        deviation = np.where(online, values - mean, 0.0)
        variance = float((deviation * deviation).sum() / self._online_count)
        return deviation, mean, variance

    def spreads(self) -> Spreads:
        """Tell about all spreads: the parts', then that of reserved memory."""
        parts, count = self.parts, self._online_count
        variances = [*(part.variance for part in parts), self._reserved_variance]
        reach = [*(part.reach for part in parts), self._reserved_reach]
        return Spreads(
            variances=np.array(variances),
            means=np.array([*(part.mean for part in parts), self._reserved_mean]),
            weights=np.array([*(part.weight for part in parts), 1.0]),
            drift=np.array(reach) * 2.0 / count,
        )

    def estimate(
        self, kind: Kind, inst: Ints, target: Ints, seen: Floats | None = None
    ) -> Floats:
        """Estimate score changes; infinite where a move is not allowed.

        ``inst`` and ``target`` are broadcast together. ``seen`` (spreads x 2) is
        widened to hold the changes of variances found.
        """
        state = self.state
        move = Move(
            kind=kind,
            ends=_ENDS[kind],
            inst=inst,
            primary=state.primary[inst],
            secondary=state.secondary[inst],
            target=target,
        )
        allowed = self._allowed(move)
        reserved = self._reserved_after(move)
        with np.errstate(invalid="ignore"):
            allowed = allowed & self._legal(move, reserved)
            change = self._spreads(move, reserved, allowed, seen)
        change = change + self._counted(move, reserved)
        return np.where(allowed, change, np.inf)

    def _allowed(self, move: Move) -> Bools:
        """Tell which instances have this kind of move, and whether targets are free."""
        fixed, options = self.state.fixed, self.options
        online, inst = fixed.online, move.inst
        leaves_online = options.restricted & online[move.primary]
        has_secondary = move.secondary != NONE
        online_secondary = has_secondary & online[move.secondary]
        may = fixed.drbd[inst] & has_secondary
        if move.kind == Kind.FAILOVER:
            found: Bools = may & online_secondary & options.instance_moves
            return found
        if move.kind == Kind.FAILOVER_TO:
            may = self._external[inst] & options.instance_moves
        else:
            may = may & options.disk_moves
        if move.kind not in {Kind.FAILOVER_TO, Kind.REPLACE_SECONDARY}:
            may = may & options.instance_moves & ~leaves_online
        if move.kind == Kind.REPLACE_PRIMARY:
            may = may & (not options.restricted)
        if move.kind in {Kind.REPLACE_PRIMARY, Kind.FAILOVER_REPLACE}:
            may = may & online_secondary
        free = (move.target != move.primary) & (move.target != move.secondary)
        result: Bools = may & free
        return result

    def _after(self, row: Row, node: Ints, gain: Floats, inst: Ints) -> Floats:
        """Give amounts of nodes after instances changed their role there."""
        gained = gain[row][inst]
        if self._exclusive:
            gained = gained * self.state.fixed.counted[row][node]
        result: Floats = self.state.amounts[row][node] + gained
        return result

    def _without(self, node: Ints, peer: Ints, inst: Ints) -> Ints:
        """Give reserved memory of secondaries after they lost instances."""
        kept, peers = self.state.reserved[node], self.state.peers[node, peer]
        left = peers - self._reserved[inst]
        return np.where(
            peers < kept, kept, np.maximum(self._reserved_second[node], left)
        )

    def _reserved_after(self, move: Move) -> tuple[Floats | Ints, ...]:
        """Give reserved memory after the move of old primary, old secondary, target."""
        state, own = self.state, self._reserved[move.inst]
        p, s, t = move.primary, move.secondary, move.target
        at_p, at_s = state.reserved[p], state.reserved[s]
        at_t = state.reserved[t]
        if move.kind == Kind.FAILOVER_TO:
            return at_p, at_s, at_t
        lost = self._without(s, p, move.inst)
        peers = state.peers
        match move.kind:
            case Kind.FAILOVER:
                return np.maximum(at_p, peers[p, s] + own), lost, at_t
            case Kind.REPLACE_SECONDARY:
                return at_p, lost, np.maximum(at_t, peers[t, p] + own)
            case Kind.REPLACE_FAILOVER:
                return np.maximum(at_p, peers[p, t] + own), lost, at_t
            case Kind.REPLACE_PRIMARY:
                return at_p, np.maximum(lost, peers[s, t] + own), at_t
            case _:
                return at_p, lost, np.maximum(at_t, peers[t, s] + own)

    def _legal(self, move: Move, reserved: tuple[Floats | Ints, ...]) -> Bools:
        """Judge the additions of a move as ``rules`` does."""
        online, force = self.state.fixed.online, self.options.force
        p, s, t = move.primary, move.secondary, move.target
        strict = online[p] & (not force)
        kept = (s != NONE) & online[s] & (not force)
        up, down = self._gain["", "p"], self._gain["", "s"]
        swap, fall = self._gain["s", "p"], self._gain["p", "s"]
        legal = self._migration(move)
        match move.kind:
            case Kind.FAILOVER:
                lost = self._without(s, p, move.inst)
                legal = legal & self._takes_primary(move, s, swap, lost, strict)
                return legal & self._takes_secondary(
                    move, p, fall, reserved[0], strict, need_disk=online[p]
                )
            case Kind.FAILOVER_TO:
                at_t = self.state.reserved[t]
                return legal & self._takes_primary(move, t, up, at_t, strict)
            case Kind.REPLACE_SECONDARY:
                zero, never = np.zeros_like(up), np.zeros_like(strict)
                legal = self._takes_primary(move, p, zero, reserved[0], never)
                return legal & self._takes_secondary(move, t, down, reserved[2], kept)
            case Kind.REPLACE_FAILOVER:
                always = np.full_like(strict, not force)
                at_t = self.state.reserved[t]
                legal = legal & self._takes_primary(move, t, up, at_t, always)
                return legal & self._takes_secondary(move, p, fall, reserved[0], kept)
            case Kind.REPLACE_PRIMARY:
                lost = self._without(s, p, move.inst)
                legal = legal & self._takes_primary(move, s, swap, lost, strict)
                at_t = self.state.reserved[t]
                legal = legal & self._takes_primary(move, t, up, at_t, strict)
                zero = np.zeros_like(up)
                return legal & self._takes_secondary(move, s, zero, reserved[1], strict)
            case _:
                lost = self._without(s, p, move.inst)
                legal = legal & self._takes_primary(move, s, swap, lost, strict)
                return legal & self._takes_secondary(move, t, down, reserved[2], strict)

    def _migration(self, move: Move) -> Bools:
        if not self._restricting_tags or move.kind == Kind.REPLACE_SECONDARY:
            return np.ones_like(move.primary, dtype=np.bool_)
        may = self.state.fixed.tags.migration
        if move.kind in {Kind.FAILOVER, Kind.FAILOVER_REPLACE}:
            return may[move.primary, move.secondary]
        if move.kind == Kind.REPLACE_PRIMARY:
            return may[move.primary, move.secondary] & may[move.secondary, move.target]
        return may[move.primary, move.target]

    def _takes_primary(
        self,
        move: Move,
        node: Ints,
        gain: Floats,
        reserved: Ints | Floats,
        strict: Bools,
    ) -> Bools:
        """Judge nodes that become primary; ``reserved`` is before the addition."""
        state, fixed, inst = self.state, self.state.fixed, move.inst
        memory = self._after(Row.MEMORY, node, gain, inst)
        hard, soft = self._has_space(move, node, gain, 0)
        before = memory - fixed.as_primary[Row.MEMORY][inst]
        failing = np.where(node == move.target, state.failing[node], before <= reserved)
        soft = soft & ((memory > reserved) | failing)
        soft = soft & self._cpu_fits(node, self._after(Row.CPU, node, gain, inst))
        if len(fixed.tags.names):
            soft = soft & (self._conflicts(inst, node, 0) == 0)
        hard = hard & (memory > 0)
        if self._forthcoming:
            hard = hard | fixed.forthcoming[inst]
            soft = soft | fixed.forthcoming[inst]
            _hard, space = self._has_space(move, node, gain, int(Row.ALL_MEMORY))
            soft = soft & _hard & space
            cpu = self._after(Row.ALL_CPU, node, gain, inst)
            soft = soft & self._cpu_fits(node, cpu)
        soft = soft & (self._after(Row.ALL_MEMORY, node, gain, inst) > 0)
        return hard & (soft | ~strict)

    def _takes_secondary(
        self,
        move: Move,
        node: Ints,
        gain: Floats,
        reserved: Ints | Floats,
        strict: Bools,
        *,
        need_disk: Bools | None = None,
    ) -> Bools:
        """Judge nodes that become secondary; ``reserved`` is after the addition."""
        state, fixed, inst = self.state, self.state.fixed, move.inst
        own = fixed.reserved[inst]
        memory = self._after(Row.MEMORY, node, gain, inst)
        hard, soft = self._has_space(move, node, gain, 0, need_disk)
        failing: Bools = state.failing[node]
        if move.kind in {Kind.FAILOVER, Kind.REPLACE_FAILOVER}:
            failing = memory <= state.reserved[node]
        elif move.kind == Kind.REPLACE_PRIMARY:
            failing = memory <= self._without(node, move.primary, inst)
        soft = soft & (own < memory) & ((memory > reserved) | failing)
        if self._forthcoming:
            hard = hard | fixed.forthcoming[inst]
            soft = soft | fixed.forthcoming[inst]
            all_hard, space = self._has_space(
                move, node, gain, int(Row.ALL_MEMORY), need_disk
            )
            soft = soft & all_hard & space
        soft = soft & (own < self._after(Row.ALL_MEMORY, node, gain, inst))
        return hard & (soft | ~strict)

    def _has_space(
        self,
        move: Move,
        node: Ints,
        gain: Floats,
        first: int,
        need_disk: Bools | None = None,
    ) -> tuple[Bools, Bools]:
        """Judge disk and spindles: what must be, and what should be."""
        fixed, inst = self.state.fixed, move.inst
        exempt = ~fixed.local[inst]
        disk = self._after(Row(first + Row.DISK), node, gain, inst)
        row = Row(Row.ALL_SPINDLES if first else Row.SPINDLES)
        used = self._after(row, node, gain, inst)
        full = disk <= 0
        if need_disk is not None:
            full = full & need_disk
        hard = exempt | ~full
        if self._exclusive:
            free = self._after(Row(row + 1), node, gain, inst)
            bad = fixed.exclusive[node] & (fixed.unknown_spindles[inst] | (free < 0))
            hard = hard & (exempt | ~bad)
        soft = (disk >= fixed.low_disk[node]) & (used <= fixed.high_spindles[node])
        return hard, exempt | soft

    def _cpu_fits(self, node: Ints, used: Floats) -> Bools:
        fixed = self.state.fixed
        ratio = fixed.cpu_ratio[node]
        fits: Bools = (ratio < 0) | (ratio >= used / fixed.cpus[node])
        return fits

    def _conflicts(self, inst: Ints, node: Ints, more_than: int) -> Ints:
        """Count exclusion tags of instances that nodes have more than so often."""
        state = self.state
        found = np.zeros(np.broadcast_shapes(inst.shape, node.shape), dtype=np.int64)
        owned = state.fixed.tags.exclusion
        for tag in np.nonzero(owned[:, inst.ravel()].any(axis=1))[0]:
            found += owned[tag][inst] & (state.tag_count[tag][node] > more_than)
        return found

    def _spreads(
        self,
        move: Move,
        reserved: tuple[Floats | Ints, ...],
        allowed: Bools,
        seen: Floats | None,
    ) -> Floats:
        """Add up what the spreads change, and reserved memory's sum."""
        change: Floats = np.zeros(1)
        for index, part in enumerate(self.parts):
            steps = [
                (node, self._step(part, move.inst, node, before, after))
                for node, before, after in (
                    (move.primary, "p", move.ends.primary),
                    (move.secondary, "s", move.ends.secondary),
                    (move.target, "", move.ends.target),
                )
                if after not in {"=", before}
            ]
            gain = self._variance_change(part.deviation, steps)
            change = change + self._spread(part.variance, part.weight, gain)
            _widen(seen, index, gain, allowed)
        inverse, before_ = self._inverse_memory, self.state.reserved
        nodes = (move.primary, move.secondary, move.target)
        steps = [
            (node, (after - before_[node]) * inverse[node])
            for node, after in zip(nodes, reserved, strict=True)
        ]
        if move.kind == Kind.FAILOVER_TO:
            return change
        gain = self._variance_change(self._reserved_deviation, steps)
        _widen(seen, len(self.parts), gain, allowed)
        change = change + self._spread(self._reserved_variance, 1.0, gain)
        rise = steps[0][1] + steps[1][1] + steps[2][1]
        result: Floats = change + score.WEIGHTS["reserved_mem_rtotal"] * rise
        return result

    def _step(
        self, part: Part, inst: Ints, node: Ints, before: str, after: str
    ) -> Floats:
        gain = self._gain[before, after]
        step: Floats = gain[part.row][inst] * part.inverse[node]
        if part.second is not None:
            row = Row.FREE_SPINDLES if part.row == Row.DISK else Row.ALL_FREE_SPINDLES
            step = step + gain[row][inst] * part.second[node]
        return step

    def _variance_change(
        self, deviation: Floats, steps: list[tuple[Ints, Floats]]
    ) -> Floats:
        """Give the change of a variance when some nodes' values make a step."""
        squares: Floats = np.zeros(1)
        sums: Floats = np.zeros(1)
        for node, step in steps:
            squares = squares + step * (2.0 * deviation[node] + step)
            sums = sums + step
        count = self._online_count
        result: Floats = (squares - sums * sums / count) / count
        return result

    @staticmethod
    def _spread(variance: float, weight: float, gain: Floats) -> Floats:
        after: Floats = weight * np.sqrt(np.maximum(variance + gain, 0.0))
        change: Floats = after - weight * variance**0.5
        return change

    def _counted(self, move: Move, reserved: tuple[Floats | Ints, ...]) -> Floats:
        """Add up what components that count something change."""
        fixed, inst = self.state.fixed, move.inst
        online, real = fixed.online, ~fixed.forthcoming[inst]
        p, s = move.primary, move.secondary
        change = self._failing(move, reserved)
        off_p = (~online[p] & real).astype(np.float64)
        if move.ends.primary != "=":
            change = change - score.WEIGHTS["offline_pri_cnt"] * off_p
        if move.ends.primary == "":
            change = change - score.WEIGHTS["offline_all_cnt"] * off_p
        if move.ends.secondary == "":
            off_s = ~online[s] & real
            change = change - score.WEIGHTS["offline_all_cnt"] * off_s
        if move.kind == Kind.REPLACE_SECONDARY and not self._located:
            return change
        new_p = self._new_primary(move)
        if len(fixed.tags.names) and move.ends.primary != "=":
            lost = self._conflicts(inst, p, 1) * online[p]
            won = self._conflicts(inst, new_p, 0) * online[new_p]
            change = change + score.WEIGHTS["pri_tags_score"] * (won - lost)
        if self._located:
            change = change + self._located_change(move, new_p) * real
            if len(fixed.tags.names) and move.ends.primary != "=":
                change = change + self._pairs_change(move, new_p)
        return change

    @staticmethod
    def _new_primary(move: Move) -> Ints:
        if move.ends.primary == "=":
            return move.primary
        return move.secondary if move.ends.secondary == "p" else move.target

    def _failing(self, move: Move, reserved: tuple[Floats | Ints, ...]) -> Floats:
        """Count what the instances on nodes that fail N+1 change."""
        state, fixed, inst = self.state, self.state.fixed, move.inst
        real = ~fixed.forthcoming[inst]
        result: Floats = np.zeros(1)
        ends = move.ends
        for node, before, after, kept in (
            (move.primary, "p", ends.primary, reserved[0]),
            (move.secondary, "s", ends.secondary, reserved[1]),
            (move.target, "", ends.target, reserved[2]),
        ):
            role = before if after == "=" else after
            if role == before and move.kind != Kind.REPLACE_PRIMARY:
                continue
            memory = state.amounts[Row.MEMORY][node]
            if role != before:
                memory = self._after(Row.MEMORY, node, self._gain[before, role], inst)
            count = self._counts[node] + (bool(role) - bool(before))
            old = state.failing[node] * self._counts[node]
            change = (memory <= kept) * count - old
            result = result + change * fixed.online[node] * real
        return result

    def _located_change(self, move: Move, new_p: Ints) -> Floats:
        """Change of the location score."""
        state, fixed, inst = self.state, self.state.fixed, move.inst
        common = state.common[inst]
        after = common
        if move.kind not in {Kind.FAILOVER, Kind.FAILOVER_TO}:
            new_s = {
                Kind.REPLACE_SECONDARY: move.target,
                Kind.REPLACE_FAILOVER: move.primary,
                Kind.REPLACE_PRIMARY: move.secondary,
                Kind.FAILOVER_REPLACE: move.target,
            }[move.kind]
            after = self._common[new_p, new_s]
        lacking, online = fixed.tags.lacking, fixed.online
        new = (after + lacking[inst, new_p]) * online[new_p]
        old = (common + lacking[inst, move.primary]) * online[move.primary]
        result: Floats = (new - old).astype(np.float64)
        return result

    def _pairs_change(self, move: Move, new_p: Ints) -> Floats:
        """Change of the number of repeated (location tag, exclusion tag) pairs."""
        fixed, inst, p = self.state.fixed, move.inst, move.primary
        online = fixed.online
        pairs = score.location_pairs(self.state, online)
        located = fixed.tags.location & online
        result: Floats = np.zeros(1)
        for tag, has in enumerate(fixed.tags.exclusion):
            if not has[inst].any():
                continue
            for place, at in enumerate(located):
                won = at[new_p] & ~at[p] & has[inst]
                lost = at[p] & ~at[new_p] & has[inst]
                count = pairs[place, tag]
                result = result + won * float(count >= 1) - lost * float(count > 1)
        return result


def _widen(seen: Floats | None, index: int, gain: Floats, allowed: Bools) -> None:
    """Widen a range of changes by those that are allowed."""
    if seen is None:
        return
    low = np.where(allowed, gain, np.inf).min(initial=np.inf)
    high = np.where(allowed, gain, -np.inf).max(initial=-np.inf)
    seen[index, 0] = min(seen[index, 0], low)
    seen[index, 1] = max(seen[index, 1], high)
