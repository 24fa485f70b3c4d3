"""Whether a node may take an instance, and why not.

The state given is the one before; what is judged is the one after. ``strict`` means
that soft errors (limits of the policy, N+1, tags) count too.
"""

import enum
from typing import Final

from ganeti.htools.model import Instance, Policy, Spec
from ganeti.htools.state import Floats, Row, State

#: The two halves of a node's amounts: real ones, and those with forthcoming ones.
_NOW: Final = slice(Row.MEMORY, Row.ALL_MEMORY)
_ALL: Final = slice(Row.ALL_MEMORY, None)


class Fail(enum.StrEnum):
    """Why an instance cannot be put on a node, in the order of summaries."""

    MEMORY = "FailMem"
    DISK = "FailDisk"
    CPU = "FailCPU"
    N1 = "FailN1"
    TAGS = "FailTags"
    MIGRATION = "FailMig"
    DISK_COUNT = "FailDiskCount"
    SPINDLES = "FailSpindles"
    INTERNAL = "FailInternal"


def primary(state: State, inst: int, node: int, *, strict: bool = True) -> Fail | None:
    """Tell why a node cannot become the primary of an instance; None if it can."""
    fixed = state.fixed
    gained = fixed.counted[:, node] * fixed.as_primary[:, inst]
    found = state.amounts[:, node] + gained
    real = not fixed.forthcoming[inst]
    if real:
        if found[Row.MEMORY] <= 0:
            return Fail.MEMORY
        failure = _space(state, inst, node, found[_NOW], strict=strict)
        if failure is not None:
            return failure
    if not strict:
        return None
    if real:
        if found[Row.MEMORY] <= state.reserved[node] and not state.failing[node]:
            return Fail.MEMORY
        if _too_many_cpus(state, node, found[Row.CPU]):
            return Fail.CPU
        if (fixed.tags.exclusion[:, inst] & (state.tag_count[:, node] > 0)).any():
            return Fail.TAGS
    if found[Row.ALL_MEMORY] <= 0:
        return Fail.MEMORY
    failure = _space(state, inst, node, found[_ALL], strict=True)
    if failure is None and _too_many_cpus(state, node, found[Row.ALL_CPU]):
        failure = Fail.CPU
    return failure


def secondary(
    state: State,
    inst: int,
    node: int,
    peer: int,
    *,
    strict: bool = True,
    need_disk: bool = True,
) -> Fail | None:
    """Tell why a node cannot become the secondary; None if it can.

    ``peer`` is the primary it would have. Without ``need_disk`` a full disk is no
    reason: the node had the instance already and is offline.
    """
    fixed = state.fixed
    if not fixed.drbd[inst]:
        return Fail.DISK
    before = state.amounts[:, node]
    found = before + fixed.counted[:, node] * fixed.as_secondary[:, inst]
    reserved = fixed.reserved[inst]
    if not fixed.forthcoming[inst]:
        failure = _space(
            state, inst, node, found[_NOW], strict=strict, need_disk=need_disk
        )
        if failure is not None:
            return failure
        if strict:
            largest = max(state.reserved[node], state.peers[node, peer] + reserved)
            room = before[Row.MEMORY]
            if reserved >= room or (room <= largest and not state.failing[node]):
                return Fail.MEMORY
    if not strict:
        return None
    failure = _space(state, inst, node, found[_ALL], strict=True, need_disk=need_disk)
    if failure is None and reserved >= before[Row.ALL_MEMORY]:
        failure = Fail.MEMORY
    return failure


def migration(state: State, source: int, target: int) -> Fail | None:
    """Tell whether tags forbid to migrate between two nodes."""
    return None if state.fixed.tags.migration[source, target] else Fail.MIGRATION


def policy(policy_: Policy, inst: Instance, *, exclusive: bool) -> Fail | None:
    """Tell how a new instance breaks a policy; None if it fits one of its ranges."""
    first: Fail | None = None
    for place, (low, high) in enumerate(policy_.ranges):
        failure = _below(low, inst, 1, exclusive=exclusive) or _below(
            high, inst, -1, exclusive=exclusive
        )
        if failure is None:
            break
        if place == 0:
            first = failure
    else:
        return first
    return None if inst.template in policy_.templates else Fail.DISK


def _below(bound: Spec, inst: Instance, sign: int, *, exclusive: bool) -> Fail | None:
    """Compare with the lower bound of a range (sign 1) or the upper one (sign -1)."""

    def outside(value: int, limit: int) -> bool:
        return sign * value < sign * limit

    if outside(inst.memory, bound.memory):
        return Fail.MEMORY
    if any(outside(size, bound.disk) for size in inst.disks):
        return Fail.DISK
    if outside(inst.vcpus, bound.cpus):
        return Fail.CPU
    spindles = inst.spindles if exclusive else inst.spindle_use
    if spindles is None or outside(spindles, bound.spindles):
        return Fail.SPINDLES
    if inst.template != "diskless" and outside(len(inst.disks), bound.disks):
        return Fail.DISK_COUNT
    return None


def _space(
    state: State,
    inst: int,
    node: int,
    found: Floats,
    *,
    strict: bool,
    need_disk: bool = True,
) -> Fail | None:
    """Judge disk and spindles of a local-disk instance.

    ``found`` is half of a node's amounts after: real ones or those with forthcoming.
    """
    fixed = state.fixed
    if not fixed.local[inst]:
        return None
    disk, spindles, free = found[Row.DISK], found[-2], found[-1]
    if need_disk and disk <= 0:
        return Fail.DISK
    if strict and disk < fixed.low_disk[node]:
        return Fail.DISK
    if fixed.exclusive[node] and (fixed.unknown_spindles[inst] or free < 0):
        return Fail.SPINDLES
    if strict and spindles > fixed.high_spindles[node]:
        return Fail.DISK
    return None


def _too_many_cpus(state: State, node: int, used: float) -> bool:
    ratio = state.fixed.cpu_ratio[node]
    return bool(ratio >= 0 and ratio < used / state.fixed.cpus[node])
