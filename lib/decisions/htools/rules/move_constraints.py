"""The constraints of moves, for arrays of instances and nodes at once.

Same rules as ``rules.constraints``, which checks one instance, but computed from the
state before the move. The benefit of a move is computed in ``score.move_estimates``.
"""

from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.state.amounts import Flags, Floats, Ints
from ganeti.decisions.htools.state.instance_deltas import (
    LATER,
    DeltaRow,
    InstanceDeltas,
)
from ganeti.decisions.htools.state.node_state import ClusterState


class MoveOptions(msgspec.Struct, frozen=True):
    """Options that limit the moves of a plan.

    ``restricted`` forbids migration off online nodes; ``force`` ignores soft errors;
    ``evacuate`` moves only instances that have an offline node. Nothing moves to nodes
    of ``no_targets``, which are given by position.
    """

    disk_moves: bool = True
    instance_moves: bool = True
    restricted: bool = False
    force: bool = False
    evacuate: bool = False
    no_targets: frozenset[int] = frozenset()


class RoleChange(msgspec.Struct, frozen=True):
    """New roles of the old nodes and of the target after a kind of move.

    Roles: "p" primary, "s" secondary, "" none, "=" as before.
    """

    primary: str
    secondary: str
    target: str


ROLE_CHANGES: Final = {
    MoveKind.FAILOVER: RoleChange("s", "p", ""),
    MoveKind.FAILOVER_TO: RoleChange("", "=", "p"),
    MoveKind.REPLACE_SECONDARY: RoleChange("=", "", "s"),
    MoveKind.REPLACE_FAILOVER: RoleChange("s", "", "p"),
    MoveKind.REPLACE_PRIMARY: RoleChange("", "=", "p"),
    MoveKind.FAILOVER_REPLACE: RoleChange("", "p", "s"),
}


#: Kinds that copy disks.
_COPYING: Final = frozenset(MoveKind) - {MoveKind.FAILOVER, MoveKind.FAILOVER_TO}


class MoveArrays(msgspec.Struct):
    """Arrays of one evaluation: instances, their nodes and targets, the kind."""

    kind: MoveKind
    ends: RoleChange
    inst: Ints
    primary: Ints
    secondary: Ints
    target: Ints


class MoveConstraints:
    """The rules for one state.

    Call ``refresh`` after the state changed. ``gain`` maps (old role, new role) of an
    instance to the amounts that its node gains by the change.
    """

    def __init__(self, state: ClusterState, options: MoveOptions) -> None:
        self.state = state
        self.options = options
        self.deltas = deltas = InstanceDeltas(state)
        # A state without these does not compute the rows about them.
        self._exclusive = bool(state.exclusive.any())
        self._forthcoming = bool(deltas.forthcoming.any())
        self._some_local = bool(deltas.local.any())
        self.own_reserve = deltas.reserved
        p, s = deltas.as_primary, deltas.as_secondary
        self.gain = {
            ("", "p"): p,
            ("", "s"): s,
            ("p", ""): -p,
            ("p", "s"): s - p,
            ("s", ""): -s,
            ("s", "p"): p - s,
        }
        self._no_gain: Floats = np.zeros_like(p)
        self._anywhere: Flags = np.ones(1, np.bool_)
        #: Most virtual CPUs per physical one; without physical CPUs nothing fits.
        has_cpus = state.t_cpu != 0
        self._cpus: Floats = np.where(has_cpus, state.t_cpu, 1.0)
        self._cpu_ratio: Floats = np.where(has_cpus, state.cpu_ratio, -np.inf)
        self._any_ratio: Flags = state.cpu_ratio < 0
        self._second = np.zeros(state.size)
        self.refresh(np.arange(state.size))

    def refresh(self, nodes: Ints) -> None:
        """Update from the state after changes of some nodes."""
        # One node has no second largest sum.
        if len(self._second) > 1:
            peers = self.state.peers[nodes]
            # When the primary with the largest sum loses an instance, this one may be
            # largest.
            self._second[nodes] = np.partition(peers, -2, axis=1)[:, -2]

    def move(self, kind: MoveKind, inst: Ints, target: Ints) -> MoveArrays:
        """Return moves of one kind, one target per instance."""
        deltas = self.deltas
        return MoveArrays(
            kind=kind,
            ends=ROLE_CHANGES[kind],
            inst=inst,
            primary=deltas.primary[inst],
            secondary=deltas.secondary[inst],
            target=target,
        )

    def after(self, row: int, node: Ints, gain: Floats, inst: Ints) -> Floats:
        """Return a row of nodes after instances changed their role there."""
        gained = gain[row][inst]
        if self._exclusive:
            gained = gained * self.deltas.counted[row][node]
        amounts: Floats = self.state.rows[row][node] + gained
        return amounts

    def without(self, node: Ints, peer: Ints, inst: Ints) -> Ints:
        """Return the reserved memory of secondaries after they lost instances."""
        kept, peers = self.state.r_mem[node], self.state.peers[node, peer]
        left = peers - self.own_reserve[inst]
        # A primary whose sum is not the largest does not change the maximum.
        return np.where(peers < kept, kept, np.maximum(self._second[node], left))

    def reserved_after(self, move: MoveArrays) -> tuple[Floats | Ints, ...]:
        """Return reserved memory after moves: of old primary, old secondary, target."""
        state, own = self.state, self.own_reserve[move.inst]
        p, s, t = move.primary, move.secondary, move.target
        at_p, at_s = state.r_mem[p], state.r_mem[s]
        at_t = state.r_mem[t]
        if move.kind == MoveKind.FAILOVER_TO:
            return at_p, at_s, at_t
        without = self.without(s, p, move.inst)
        peers = state.peers
        match move.kind:
            case MoveKind.FAILOVER:
                return np.maximum(at_p, peers[p, s] + own), without, at_t
            case MoveKind.REPLACE_SECONDARY:
                return at_p, without, np.maximum(at_t, peers[t, p] + own)
            case MoveKind.REPLACE_FAILOVER:
                return np.maximum(at_p, peers[p, t] + own), without, at_t
            case MoveKind.REPLACE_PRIMARY:
                return at_p, np.maximum(without, peers[s, t] + own), at_t
            case _:
                return at_p, without, np.maximum(at_t, peers[t, s] + own)

    def least_reserved(self, move: MoveArrays) -> tuple[Floats | Ints, ...]:
        """Return lower bounds of ``reserved_after`` of old nodes, for any target."""
        state, own = self.state, self.own_reserve[move.inst]
        at_p, at_s = state.r_mem[move.primary], state.r_mem[move.secondary]
        if move.kind == MoveKind.FAILOVER_TO:
            return at_p, at_s
        without = self.without(move.secondary, move.primary, move.inst)
        if move.kind == MoveKind.REPLACE_FAILOVER:
            return np.maximum(at_p, own), without
        if move.kind == MoveKind.REPLACE_PRIMARY:
            return at_p, np.maximum(without, own)
        return at_p, without

    def legal(self, move: MoveArrays, reserved: tuple[Floats | Ints, ...]) -> Flags:
        """Return whether moves satisfy the rules of ``rules.constraints``."""
        legal = self.legal_before(move, reserved)
        if move.kind == MoveKind.FAILOVER:
            return legal
        t, strict = move.target, self.is_strict(move)
        if move.ends.target == "p":
            up, at_t = self.gain["", "p"], self.state.r_mem[t]
            legal = legal & self._may_arrive(move)
            return legal & self.takes_primary(move, t, up, at_t, strict)
        down = self.gain["", "s"]
        return legal & self.takes_secondary(move, t, down, reserved[2], strict)

    def is_strict(self, move: MoveArrays) -> Flags:
        """Return for which moves the soft rules of the target count."""
        online, force = self.state.online, self.options.force
        if move.kind == MoveKind.REPLACE_FAILOVER:
            return np.full(move.inst.shape, not force)
        if move.kind == MoveKind.REPLACE_SECONDARY:
            # Soft rules are waived for a copy that leaves an offline node.
            kept: Flags = (move.secondary != NONE) & online[move.secondary]
            return kept & (not force)
        strict: Flags = online[move.primary] & (not force)
        return strict

    def legal_before(
        self, move: MoveArrays, reserved: tuple[Floats | Ints, ...]
    ) -> Flags:
        """Return whether old nodes satisfy rules; ``reserved`` is after the move."""
        online, force = self.state.online, self.options.force
        p, s = move.primary, move.secondary
        strict = online[p] & (not force)
        legal = self._may_leave(move)
        match move.kind:
            case MoveKind.FAILOVER_TO:
                return legal
            case MoveKind.REPLACE_SECONDARY:
                # The primary stays where it is, so only its hard rules count.
                zero, never = self._no_gain, ~self._anywhere
                return legal & self.takes_primary(move, p, zero, reserved[0], never)
            case MoveKind.REPLACE_FAILOVER:
                kept = (s != NONE) & online[s] & (not force)
                fall = self.gain["p", "s"]
                return legal & self.takes_secondary(move, p, fall, reserved[0], kept)
        again = move.kind == MoveKind.REPLACE_PRIMARY
        without = self.without(s, p, move.inst) if again else reserved[1]
        legal = legal & self.takes_primary(
            move, s, self.gain["s", "p"], without, strict
        )
        if move.kind == MoveKind.FAILOVER:
            return legal & self.takes_secondary(
                move,
                p,
                self.gain["p", "s"],
                reserved[0],
                strict,
                # Ganeti does not test the free disk of an offline node that becomes
                # secondary.
                need_disk=online[p],
            )
        if again:
            zero = self._no_gain
            return legal & self.takes_secondary(move, s, zero, reserved[1], strict)
        return legal

    def _may_leave(self, move: MoveArrays) -> Flags:
        """Return whether tags allow the migrations between old nodes."""
        may = self.state.may_migrate
        through = {
            MoveKind.FAILOVER,
            MoveKind.FAILOVER_REPLACE,
            MoveKind.REPLACE_PRIMARY,
        }
        if may is None or move.kind not in through:
            return self._anywhere
        return may[move.primary, move.secondary]

    def _may_arrive(self, move: MoveArrays) -> Flags:
        """Return whether tags allow the migrations to the target."""
        may = self.state.may_migrate
        if may is None:
            return self._anywhere
        through = move.kind == MoveKind.REPLACE_PRIMARY
        return may[move.secondary if through else move.primary, move.target]

    def takes_primary(
        self,
        move: MoveArrays,
        node: Ints,
        gain: Floats,
        reserved: Ints | Floats,
        strict: Flags,
    ) -> Flags:
        """Return whether nodes can be primary; ``reserved`` is before the addition."""
        state, deltas, inst = self.state, self.deltas, move.inst
        memory = self.after(DeltaRow.MEMORY, node, gain, inst)
        hard, soft = self._has_space(move, node, gain)
        before = memory - deltas.as_primary[DeltaRow.MEMORY][inst]
        # As before the addition: the target at present, an old node without the
        # instance.
        failing = np.where(
            node == move.target, state.fails_n1[node], before <= reserved
        )
        soft = soft & ((memory > reserved) | failing)
        soft = soft & self._cpu_fits(node, self.after(DeltaRow.CPU, node, gain, inst))
        if len(state.exclusion_tags):
            soft = soft & (self.conflicts(inst, node, 0) == 0)
        hard = hard & (memory > 0)
        if self._forthcoming:
            # For a forthcoming instance all rules are soft, and only those of
            # reservations apply.
            hard = hard | deltas.forthcoming[inst]
            soft = soft | deltas.forthcoming[inst]
            _hard, space = self._has_space(move, node, gain, later=True)
            soft = soft & _hard & space
            cpu = self.after(DeltaRow.ALL_CPU, node, gain, inst)
            soft = soft & self._cpu_fits(node, cpu)
        # An instance that exists must fit beside the reservations as well.
        soft = soft & (self.after(DeltaRow.ALL_MEMORY, node, gain, inst) > 0)
        return hard & (soft | ~strict)

    def takes_secondary(
        self,
        move: MoveArrays,
        node: Ints,
        gain: Floats,
        reserved: Ints | Floats,
        strict: Flags,
        *,
        need_disk: Flags | None = None,
    ) -> Flags:
        """Return whether nodes can be secondary; ``reserved`` is after the addition."""
        state, deltas, inst = self.state, self.deltas, move.inst
        own = deltas.asked[inst]
        memory = self.after(DeltaRow.MEMORY, node, gain, inst)
        hard, soft = self._has_space(move, node, gain, need_disk=need_disk)
        failing: Flags = state.fails_n1[node]
        if move.kind in {MoveKind.FAILOVER, MoveKind.REPLACE_FAILOVER}:
            failing = memory <= state.r_mem[node]
        elif move.kind == MoveKind.REPLACE_PRIMARY:
            failing = memory <= self.without(node, move.primary, inst)
        soft = soft & (own < memory) & ((memory > reserved) | failing)
        if self._forthcoming:
            hard = hard | deltas.forthcoming[inst]
            soft = soft | deltas.forthcoming[inst]
            all_hard, space = self._has_space(
                move, node, gain, later=True, need_disk=need_disk
            )
            soft = soft & all_hard & space
        soft = soft & (own < self.after(DeltaRow.ALL_MEMORY, node, gain, inst))
        return hard & (soft | ~strict)

    def _has_space(
        self,
        move: MoveArrays,
        node: Ints,
        gain: Floats,
        *,
        later: bool = False,
        need_disk: Flags | None = None,
    ) -> tuple[Flags, Flags]:
        """Return whether disk and spindles satisfy hard rules, and soft rules."""
        state, deltas, inst = self.state, self.deltas, move.inst
        exempt = ~deltas.local[inst]
        if not self._some_local:
            return exempt, exempt
        rows = [DeltaRow.DISK, DeltaRow.SPINDLES, DeltaRow.FREE_SPINDLES]
        if later:
            rows = [LATER[row] for row in rows]
        disk = self.after(rows[0], node, gain, inst)
        used = self.after(rows[1], node, gain, inst)
        full = disk <= 0
        if need_disk is not None:
            full = full & need_disk
        hard = exempt | ~full
        if self._exclusive:
            free = self.after(rows[2], node, gain, inst)
            bad = state.exclusive[node] & (deltas.unknown_spindles[inst] | (free < 0))
            hard = hard & (exempt | ~bad)
        soft = (disk >= state.lo_dsk[node]) & (used <= state.hi_spin[node])
        return hard, exempt | soft

    def _cpu_fits(self, node: Ints, used: Floats) -> Flags:
        fits: Flags = self._cpu_ratio[node] >= used / self._cpus[node]
        return fits | self._any_ratio[node]

    def conflicts(self, inst: Ints, node: Ints, more_than: int) -> Ints:
        """Count exclusion tags that nodes have more than ``more_than`` times."""
        counts = self.state.pri_tags
        count = np.zeros(np.broadcast_shapes(inst.shape, node.shape), dtype=np.int64)
        for tags in self.deltas.tags.T:
            tag = tags[inst]
            count += (tag != NONE) & (counts[node, tag] > more_than)
        return count


def is_permitted(move: MoveArrays, rules: MoveConstraints) -> Flags:
    """Return which moves are of a permitted kind and have a free target."""
    deltas, options = rules.deltas, rules.options
    online, inst = rules.state.online, move.inst
    leaves_online = options.restricted & online[move.primary]
    has_secondary = move.secondary != NONE
    online_secondary = has_secondary & online[move.secondary]
    may = deltas.drbd[inst] & has_secondary
    if move.kind == MoveKind.FAILOVER:
        is_allowed: Flags = may & online_secondary & options.instance_moves
        return is_allowed
    if move.kind == MoveKind.FAILOVER_TO:
        may = deltas.external[inst] & options.instance_moves
    else:
        may = may & options.disk_moves
    if move.kind not in {MoveKind.FAILOVER_TO, MoveKind.REPLACE_SECONDARY}:
        may = may & options.instance_moves & ~leaves_online
    if move.kind == MoveKind.REPLACE_PRIMARY:
        may = may & (not options.restricted)
    if move.kind in {MoveKind.REPLACE_PRIMARY, MoveKind.FAILOVER_REPLACE}:
        may = may & online_secondary
    free = (move.target != move.primary) & (move.target != move.secondary)
    allowed: Flags = may & free
    return allowed


def permitted_kinds(inst: Ints, rules: MoveConstraints) -> frozenset[MoveKind]:
    """Return the kinds of moves that some of the instances may have."""
    deltas, options = rules.deltas, rules.options
    mirrored = deltas.drbd[inst] & (deltas.secondary[inst] != NONE)
    kinds = set()
    if deltas.external[inst].any():
        kinds.add(MoveKind.FAILOVER_TO)
    if mirrored.any():
        kinds.add(MoveKind.FAILOVER)
        kinds |= _COPYING if options.disk_moves else set()
    if not options.instance_moves:
        kinds &= {MoveKind.REPLACE_SECONDARY}
    return frozenset(kinds)
