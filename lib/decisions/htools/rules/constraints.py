"""The constraints of one instance, each checked for all nodes at once.

A check has its rule, the nodes where it fails, and the wanted and actual values, so
that the same table gives verdicts and reasons. Nothing here changes a state.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.model.policy import Policy, Spec
from ganeti.decisions.htools.state.amounts import Flags, Floats
from ganeti.decisions.htools.state.node_state import ClusterState

#: Kinds of refusals; a verdict is 0 or a position here plus one.
KINDS: Final = (
    "FailMem",
    "FailDisk",
    "FailCPU",
    "FailN1",
    "FailTags",
    "FailMig",
    "FailDiskCount",
    "FailSpindles",
    "FailInternal",
)
MEM, DISK, CPU, N1, TAGS, MIG, DISK_COUNT, SPINDLES, INTERNAL = range(1, 10)

Codes = npt.NDArray[np.int8]


class Constraint(msgspec.Struct, frozen=True):
    """One rule, checked for each node.

    Attributes:
        kind: code of the refusal.
        rule: name of the checked quantity in messages.
        failed: where it does not hold.
        wanted: the limit; ``actual`` must have ``relation`` to it.
        actual: the value with the instance on the node.
    """

    kind: int
    rule: str
    failed: Flags
    relation: str
    wanted: Floats
    actual: Floats


def verdict(checks: Sequence[Constraint], size: int | tuple[int, int]) -> Codes:
    """Return the code of the first failing check, 0 where all hold."""
    out = np.zeros(size, np.int8)
    # The first failing check is written last, so its code stays.
    for check in reversed(checks):
        out[np.broadcast_to(check.failed, out.shape)] = check.kind
    return out


def verdict_on(checks: Sequence[Constraint], state: ClusterState, node: int) -> int:
    """Return the code of the first constraint that refuses one node, 0 for none."""
    return int(verdict(checks, state.size)[node])


class _ConstraintTable:
    """Collection of checks; a rule that fails on no node is left out."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.checks: list[Constraint] = []

    def above(
        self, kind: int, rule: str, actual: Floats, limit: Floats | float, where: Flags
    ) -> None:
        """Add the check: actual > limit."""
        failed = where & (actual <= limit)
        self._add(kind, rule, failed, relation=">", limit=limit, actual=actual)

    def at_least(
        self, kind: int, rule: str, actual: Floats, limit: Floats | float, where: Flags
    ) -> None:
        """Add the check: actual >= limit."""
        self._add(
            kind,
            rule,
            where & (actual < limit),
            relation=">=",
            limit=limit,
            actual=actual,
        )

    def at_most(
        self, kind: int, rule: str, actual: Floats, limit: Floats | float, where: Flags
    ) -> None:
        """Add the check: actual <= limit."""
        self._add(
            kind,
            rule,
            where & (actual > limit),
            relation="<=",
            limit=limit,
            actual=actual,
        )

    def _add(
        self,
        kind: int,
        rule: str,
        failed: Flags,
        *,
        relation: str,
        limit: Floats | float,
        actual: Floats,
    ) -> None:
        if failed.any():
            wanted = np.broadcast_to(np.asarray(limit, np.float64), actual.shape)
            self.checks.append(Constraint(kind, rule, failed, relation, wanted, actual))


def policy(
    instance: Instance, rules: Policy, *, exclusive: bool
) -> tuple[int, str, float, float] | None:
    """Return (code, rule, wanted, actual) of a group policy's refusal, or None."""
    first = None
    for low, high in rules.ranges:
        problem = _outside_policy(instance, low, high, exclusive=exclusive)
        # One range that fits suffices; else the first range gives the reason, as in
        # Ganeti.
        if problem is None:
            first = None
            break
        first = first or problem
    if first is None and instance.template not in rules.templates:
        return DISK, "disk template of the policy", 0.0, 0.0
    return first


def _outside_policy(
    instance: Instance,
    low: Spec,
    high: Spec,
    *,
    exclusive: bool,
) -> tuple[int, str, float, float] | None:
    """Return the first value that is out of bounds; lower bounds are tested first."""
    for bound, sign, word in ((low, 1, "least"), (high, -1, "largest")):
        spindles = instance.spindle_use
        if exclusive:
            # As in Ganeti, an unknown number is refused.
            if instance.spindles is None:
                return SPINDLES, f"{word} spindles of the policy", bound.spindles, -1
            spindles = instance.spindles
        rows = [(MEM, "memory", bound.memory, instance.memory)]
        rows += [(DISK, "disk size", bound.disk, size) for size in instance.disks]
        rows += [
            (CPU, "vcpus", bound.cpus, instance.vcpus),
            (SPINDLES, "spindles", bound.spindles, spindles),
        ]
        # Ganeti does not compare the number of disks of a diskless instance.
        if instance.template != "diskless":
            count = len(instance.disks)
            rows.append((DISK_COUNT, "disk count", bound.disks, count))
        for kind, what, limit, actual in rows:
            if (actual - limit) * sign < 0:
                return kind, f"{word} {what} of the policy", limit, actual
    return None


def primary(
    state: ClusterState, instance: Instance, *, strict: bool = True
) -> list[Constraint]:
    """Return the checks of an instance as primary, for all nodes.

    Args:
        state: without the instance.
        instance: the new instance.
        strict: also check policies, N+1 and tags (soft rules).
    """
    table = _ConstraintTable(state.size)
    every = np.ones(state.size, bool)
    local = every if instance.local else ~every
    if not instance.forthcoming:
        _primary_now(table, state, instance, local, strict=strict)
    if strict:
        _primary_later(table, state, instance, local)
    return table.checks


def _primary_now(
    table: _ConstraintTable,
    state: ClusterState,
    instance: Instance,
    local: Flags,
    *,
    strict: bool,
) -> None:
    every = np.ones(state.size, bool)
    # An instance that uses no memory still needs a node with some left, as in Ganeti.
    memory = instance.memory if instance.uses_memory else 0
    left = state.unallocated - memory
    table.above(MEM, "free memory", left, 0, every)
    disk = state.f_dsk - instance.disk
    table.above(DISK, "free disk", disk, 0, local)
    if strict:
        table.at_least(DISK, "disk kept free", disk, state.lo_dsk, local)
    free = state.spindles_after(state.f_spin, instance)
    table.at_least(SPINDLES, "free spindles", free, 0, local & state.exclusive)
    if not strict:
        return
    # With exclusive storage, free spindles are compared instead of their use.
    used = state.inst_spin + np.where(state.exclusive, 0, instance.spindle_use)
    table.at_most(DISK, "spindle use", used, state.hi_spin, local)
    # A node that fails N+1 anyway is not refused for it.
    fine = state.unallocated > state.r_mem
    table.above(MEM, "memory for failovers", left, state.r_mem, fine)
    vcpus = instance.vcpus if instance.online else 0
    ratio = state.per_cpu(state.u_cpu + vcpus)
    # A negative ratio stands for no limit.
    table.at_most(CPU, "vcpu ratio", ratio, state.cpu_ratio, state.cpu_ratio >= 0)
    same = state.shared_tags(instance)
    table.at_most(TAGS, "primaries with the same exclusion tag", same, 0, every)


def _primary_later(
    table: _ConstraintTable, state: ClusterState, instance: Instance, local: Flags
) -> None:
    """Add the checks that include forthcoming instances."""
    every = np.ones(state.size, bool)
    # Here an instance counts with its memory whether it runs or not.
    memory = state.f_mem_later - instance.memory
    table.above(MEM, "free memory with reservations", memory, 0, every)
    disk = state.f_dsk_later - instance.disk
    table.above(DISK, "free disk with reservations", disk, 0, local)
    table.at_least(DISK, "disk kept free", disk, state.lo_dsk, local)
    free = state.spindles_after(state.f_spin_later, instance)
    table.at_least(SPINDLES, "free spindles", free, 0, local & state.exclusive)
    used = state.inst_spin_later + np.where(state.exclusive, 0, instance.spindle_use)
    table.at_most(DISK, "spindle use", used, state.hi_spin, local)
    vcpus = instance.vcpus if instance.online else 0
    ratio = state.per_cpu(state.u_cpu_later + vcpus)
    table.at_most(CPU, "vcpu ratio", ratio, state.cpu_ratio, state.cpu_ratio >= 0)


def secondary(
    state: ClusterState,
    instance: Instance,
    peers: Floats,
    *,
    strict: bool = True,
    ignore_disk_on: int = -1,
) -> list[Constraint]:
    """Return the checks of an instance as secondary, for all nodes.

    Args:
        state: without the instance as secondary.
        instance: the new instance.
        peers: memory that nodes already reserve for the same primary; a row for one
            primary, a matrix (primary, secondary) for all of them.
        strict: also check soft rules.
        ignore_disk_on: a node whose free disk does not matter.
    """
    table = _ConstraintTable(state.size)
    every = np.ones(state.size, bool)
    if instance.template != "drbd":
        # A rule that fails on each node: other templates have no secondary.
        table.at_most(DISK, "disk template", np.ones(state.size), 0, every)
        return table.checks
    if not instance.forthcoming:
        asked = every.copy()
        if ignore_disk_on >= 0:
            asked[ignore_disk_on] = False
        _secondary_now(table, state, instance, peers, asked, strict=strict)
    if strict:
        disk = state.f_dsk_later - instance.disk
        table.above(DISK, "free disk with reservations", disk, 0, every)
        table.at_least(DISK, "disk kept free", disk, state.lo_dsk, every)
        free = state.spindles_after(state.f_spin_later, instance)
        table.at_least(SPINDLES, "free spindles", free, 0, state.exclusive)
        used = state.inst_spin_later + np.where(
            state.exclusive, 0, instance.spindle_use
        )
        table.at_most(DISK, "spindle use", used, state.hi_spin, every)
        reserve = instance.reserved_memory
        table.above(
            MEM, "free memory with reservations", state.f_mem_later, reserve, every
        )
    return table.checks


def _secondary_now(
    table: _ConstraintTable,
    state: ClusterState,
    instance: Instance,
    peers: Floats,
    asked: Flags,
    *,
    strict: bool,
) -> None:
    every = np.ones(state.size, bool)
    disk = state.f_dsk - instance.disk
    table.above(DISK, "free disk", disk, 0, asked)
    if strict:
        table.at_least(DISK, "disk kept free", disk, state.lo_dsk, every)
    free = state.spindles_after(state.f_spin, instance)
    table.at_least(SPINDLES, "free spindles", free, 0, state.exclusive)
    if not strict:
        return
    used = state.inst_spin + np.where(state.exclusive, 0, instance.spindle_use)
    table.at_most(DISK, "spindle use", used, state.hi_spin, every)
    reserve = instance.reserved_memory
    table.above(MEM, "free memory", state.unallocated, reserve, every)
    # Nodes fail one at a time, so the reserve is the largest sum over the primaries.
    kept = np.maximum(state.r_mem, peers + reserve)
    unallocated = np.broadcast_to(state.unallocated, kept.shape)
    fine = np.broadcast_to(state.unallocated > state.r_mem, kept.shape)
    table.above(MEM, "memory for failovers", unallocated, kept, fine)
