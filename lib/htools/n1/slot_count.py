"""Are there so many places that instances find one whatever went where before?

A count over all nodes at once that says yes or leaves it open: a node takes one more
unless enough went there to close it, and what was moved before can close only so many.
What it leaves open is for ``n1.check``.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.htools.model.cluster import Instance

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
Counts = npt.NDArray[np.int64]

#: Most instances on one node that are counted as places of their own.
_MOST: Final = 4
#: First instances, the largest ones, that may each close a place alone.
_BIG: Final = 3
#: Most entries of one matrix.
_CHUNK: Final = 1 << 20
#: Fewest equal instances in a row that are counted together.
_RUN: Final = 8
#: Part by which a quotient may be wrong.
_ROUNDING: Final = 1e-9
#: More than any number of places.
_MANY: Final = 1e30
#: What nobody leaves.
NO_RUNS: Final[Floats] = np.zeros((0, 6))


class UniformTail(msgspec.Struct, frozen=True, eq=False):
    """The end of what leaves a node, from many equal instances on.

    Attributes:
        memory, disk: the most of any; -1 for no disks of their own.
        need: places of that size that are enough, wherever the others went.
    """

    memory: float
    disk: float
    need: float


class EvacuationLoad(msgspec.Struct, frozen=True, eq=False):
    """What leaves a node, in order.

    Attributes:
        memory, disk: of each instance before the tail; -1 for no disk of its own.
        largest: [memory or disk, n] -> what one takes at most, the first n apart.
        runs: of all, as ``evacuees.EvacueeKinds`` gives them.
        is_allowed: policy lets all of them move.
        tail: the others; None without.
    """

    memory: Floats
    disk: Floats
    largest: Floats
    runs: Floats
    is_allowed: bool
    tail: UniformTail | None = None


def load(
    items: Sequence[Instance],
    *,
    is_allowed: bool,
    runs: Floats = NO_RUNS,
) -> EvacuationLoad:
    """Return what instances are, in the order in which they leave."""
    memory = [float(item.memory if item.uses_memory else 0) for item in items]
    disk = [float(item.disk if item.local else -1) for item in items]
    tail, head = _tail(memory, disk)
    del memory[head:], disk[head:]
    most_memory = [max(memory[n:], default=0.0) for n in range(_BIG + 1)]
    most_disk = [max([0.0, *disk[n:]]) for n in range(_BIG + 1)]
    largest = np.array([most_memory, most_disk])
    return EvacuationLoad(
        np.array(memory),
        np.array(disk),
        largest=largest,
        runs=runs,
        is_allowed=is_allowed,
        tail=tail,
    )


def _tail(memory: list[float], disk: list[float]) -> tuple[UniformTail | None, int]:
    """Return the tail and where it starts: with the longest row of equals."""
    start, longest, at = len(memory), _RUN - 1, 0
    for (each, needed), group in itertools.groupby(zip(memory, disk, strict=True)):
        length = len(list(group))
        if length > longest and each > 0 and needed != 0:
            start, longest = at, length
        at += length
    if start == len(memory):
        return None, start
    most, most_disk = max(memory[start:]), max(disk[start:])
    # An instance that left before closes as many of the places as fit into it.
    need = float(len(memory) - start)
    for each, needed in zip(memory[:start], disk[:start], strict=True):
        closed = max(1.0, math.ceil(each / most))
        if needed > 0 and most_disk > 0:
            closed = max(closed, math.ceil(needed / most_disk))
        need += closed
    return UniformTail(most, most_disk, need), start


def places_for(
    memory: float, disk: float, room: Floats, free: Floats, *, above: bool = False
) -> Floats:
    """Count how often each place takes one of a size; something must be left.

    Args:
        memory: of one.
        disk: of one; -1 for no disk of its own.
        room: memory left at each place.
        free: disk left there.
        above: round up what is not sure because of rounding, else down.
    """
    factor = 1 + (_ROUNDING if above else -_ROUNDING)
    out = np.full(len(room), np.inf)
    for each, left in ((memory, room), (disk, free)):
        if each > 0:
            out = np.minimum(out, np.ceil(left * (factor / each)) - 1)
        elif each == 0:
            out[left <= 0] = 0
    return np.asarray(np.maximum(out, 0))


def count_places(sizes: Floats, left: Floats, *, above: bool) -> Floats:
    """Return [row, place] -> how often it takes one of a size; something must be left.

    Args:
        sizes: [memory or disk or spindles, row] of one; -1 for none of its own.
        left: [memory or disk or spindles, row, place].
        above: round up what is not sure because of rounding, else down.
    """
    factor = 1 + (_ROUNDING if above else -_ROUNDING)
    # Of what needs nothing there is place for any number where anything is left.
    share = np.divide(factor, sizes, out=np.full(sizes.shape, _MANY), where=sizes > 0)
    out = np.ceil(left * share[:, :, None])
    out[sizes < 0] = np.inf
    out = out.min(axis=0) - 1
    return np.asarray(np.maximum(out, 0, out=out))


def certain(
    loads: Sequence[EvacuationLoad], at: Places, room: Floats, free: Floats
) -> Flags:
    """Tell of which nodes all instances surely find room on the others.

    Args:
        loads: of the nodes.
        at: where the nodes are among the places.
        room: memory that is left at each place, never negative.
        free: disk that is left there, never negative.
    """
    out = np.array([one.is_allowed for one in loads])
    out &= _tails_fit(loads, at, room, free)
    counts = np.array([len(one.memory) for one in loads])
    memory = np.concatenate([one.memory for one in loads])
    disk = np.concatenate([one.disk for one in loads])
    starts = np.cumsum(counts) - counts
    before = np.arange(len(memory)) - np.repeat(starts, counts)
    owner = np.repeat(np.arange(len(loads)), counts)
    largest = np.array([one.largest for one in loads])
    left = np.nonzero(out[owner])[0]
    for big in range(_BIG + 1):
        own = owner[left]
        wanted = _SlotDemand(memory[left], disk[left], largest[own, :, big], at[own])
        # Each of these closes one place at most; the others have to close the rest.
        alone = np.minimum(big, before[left])
        enough = before[left] + (_MOST - 1) * alone
        short = np.nonzero(_least(wanted, room, free) <= enough)[0]
        # Those of like size together: most places are out of the question for them.
        short = short[np.argsort(wanted.memory[short])]
        step = max(1, _CHUNK // len(room))
        parts = [short[n : n + step] for n in range(0, len(short), step)]
        result = [
            _exact(wanted.part(part), room, free) <= enough[part] for part in parts
        ]
        if not result:
            return out
        left = left[short[np.concatenate(result)]]
    out[owner[left]] = False
    return out


def _tails_fit(
    loads: Sequence[EvacuationLoad], at: Places, room: Floats, free: Floats
) -> Flags:
    """Tell of which nodes the tails surely find places."""
    out = np.ones(len(loads), bool)
    known: dict[tuple[float, float], tuple[Floats, float]] = {}
    for number, one in enumerate(loads):
        if one.tail is None:
            continue
        key = one.tail.memory, one.tail.disk
        if key not in known:
            places = places_for(*key, room, free)
            known[key] = places, float(places.sum())
        places, total = known[key]
        out[number] = total - places[at[number]] >= one.tail.need
    return out


class _SlotDemand(msgspec.Struct, frozen=True, eq=False):
    """Instances of many nodes: sizes, the largest of their node, where they are."""

    memory: Floats
    disk: Floats
    largest: Floats
    home: Places

    def part(self, at: Places) -> "_SlotDemand":
        return _SlotDemand(
            self.memory[at], self.disk[at], self.largest[at], self.home[at]
        )

    def needs(self, taken: int) -> tuple[Floats, Floats]:
        """Return what must be left where that many others may have gone before."""
        disk = self.disk + taken * self.largest[:, 1]
        memory = self.memory + taken * self.largest[:, 0]
        return memory, np.where(self.disk < 0, -1.0, disk)


def _least(wanted: _SlotDemand, room: Floats, free: Floats) -> Counts:
    """Return at least how many others close all places, memory and disk apart."""
    rooms, frees = np.sort(room), np.sort(free)
    result = np.zeros(len(wanted.memory), np.int64)
    for taken in range(_MOST):
        memory, disk = wanted.needs(taken)
        lacking = np.searchsorted(rooms, memory, side="right")
        lacking -= room[wanted.home] <= memory
        lacking += np.searchsorted(frees, disk, side="right")
        lacking -= free[wanted.home] <= disk
        result += np.maximum(0, len(room) - 1 - lacking)
    return result


def _exact(wanted: _SlotDemand, room: Floats, free: Floats) -> Counts:
    """Return at least how many others close all places, looking at each place."""
    result = np.zeros(len(wanted.memory), np.int64)
    for taken in range(_MOST):
        memory, disk = wanted.needs(taken)
        near = (room > memory.min()) & (free > disk.min())
        fine = (room[near] > memory[:, None]) & (free[near] > disk[:, None])
        result += fine.sum(axis=1)
        result -= (room[wanted.home] > memory) & (free[wanted.home] > disk)
    return result


def may_fit(sizes: Counts, room: Floats) -> bool:
    """Tell whether places suffice for all that is at least as large as each size.

    Something must be left of every place, so that it takes less than it has room for.
    """
    least = np.array(sorted(set(sizes.tolist())))
    needed = (sizes[None, :] >= least[:, None]).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.ceil(room[None, :] / least[:, None]) - 1
    places[least == 0] = len(sizes) * (room > 0)
    return bool((np.maximum(0, places).sum(axis=1) >= needed).all())


def share_before(sizes: Counts, room: Floats) -> Floats:
    """Return [one, place]: the part of all before it that would close the place.

    If the parts of all places are more than one together, some place is open whatever
    went where.
    """
    before = (np.cumsum(sizes) - sizes)[:, None]
    spare = np.maximum(0, room[None, :] - sizes[:, None])
    some = np.divide(spare, before, out=np.zeros(spare.shape), where=before > 0)
    out: Floats = np.where(before > 0, some, np.where(spare > 0, np.inf, 0.0))
    return out
