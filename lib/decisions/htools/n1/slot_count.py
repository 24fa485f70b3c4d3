"""Ints of places that decide whether instances fit in any order, or in no order.

An instance of size s fits where R > s is left, so a node with R left takes at most
q(s) = max(0, ceil(R / s) - 1) instances of at least size s; memory and disk in MiB.

- ``may_fit``, necessary: for every size s, sum q_i(s) >= number of instances of at
  least size s. Tight for instances of one size.
- ``certain``, sufficient: with L the largest size, node i is open for instance k after
  t arrivals if R_i - t L > size_k. With c_i the number of such t in 0..3, c_i arrivals
  at least close the node, so k finds a node if fewer than sum c_i leave before it. Up
  to 3 largest instances may be left out of L; each closes at most one node alone, which
  saves at most 3 arrivals.
- ``share_before``, sufficient: to close node i, arrivals of at least R_i - size_k are
  needed there, a share of all that leaves before k. If the shares of all nodes are
  together more than 1, some node stays open.
- tails, sufficient: for many equal instances at the end, sum q_i(s) less the places
  that earlier instances close, ceil(size / s) at most for each.

Open cases are simulated (``n1.simulate``). Tests:
test/py/unit/decisions/htools/n1/test_slot_count.py tries every choice of places.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.state.amounts import Flags, Floats, Ints, Places

#: Most arrivals on one node that are counted (t = 0..3).
_MOST: Final = 4
#: Most of the largest instances that are left out of the largest size L.
_BIG: Final = 3
#: Most entries of one matrix.
_CHUNK: Final = 1 << 20
#: Fewest equal instances in a row that form a tail.
_RUN: Final = 8
#: Relative error that a quotient may have.
_ROUNDING: Final = 1e-9
#: More than any number of places.
_MANY: Final = 1e30
#: The runs of a node without instances.
NO_RUNS: Final[Floats] = np.zeros((0, 6))


class UniformTail(msgspec.Struct, frozen=True, eq=False):
    """The end of what leaves a node, from the first of many equal instances on.

    Attributes:
        memory, disk: the most of any; -1 without disks of their own.
        need: number of places of that size that suffices, wherever the others went.
    """

    memory: float
    disk: float
    need: float


class EvacuationLoad(msgspec.Struct, frozen=True, eq=False):
    """Instances that leave a node, in order.

    Attributes:
        memory, disk: of each instance before the tail; -1 without a disk of its own.
        largest: [memory or disk, n] -> the most of any but the first n.
        runs: of all, as ``runs`` of the kinds of evacuees gives them.
        is_allowed: the policy lets all of them move.
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
    """Return the load of instances that are in the order in which they leave."""
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
    """Return the tail and where it starts: with the longest run of equals."""
    start, longest, at = len(memory), _RUN - 1, 0
    for (each, needed), group in itertools.groupby(zip(memory, disk, strict=True)):
        length = len(list(group))
        if length > longest and each > 0 and needed != 0:
            start, longest = at, length
        at += length
    if start == len(memory):
        return None, start
    most, most_disk = max(memory[start:]), max(disk[start:])
    # An instance that leaves before closes at most as many places as fit into it.
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
    """Count how often each place takes a size; something must be left.

    Args:
        memory: of one.
        disk: of one; -1 without a disk of its own.
        room: memory left at each place.
        free: disk left there.
        above: never count too few instead of never too many, where rounding decides.
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
    """Return [row, place] -> how often it takes a size; something must be left.

    Args:
        sizes: [memory or disk or spindles, row] of one; -1 if it takes none.
        left: [memory or disk or spindles, row, place].
        above: never count too few instead of never too many, where rounding decides.
    """
    factor = 1 + (_ROUNDING if above else -_ROUNDING)
    # Instances that need nothing fit in any number where anything is left.
    share = np.divide(factor, sizes, out=np.full(sizes.shape, _MANY), where=sizes > 0)
    out = np.ceil(left * share[:, :, None])
    out[sizes < 0] = np.inf
    out = out.min(axis=0) - 1
    return np.asarray(np.maximum(out, 0, out=out))


def certain(
    loads: Sequence[EvacuationLoad], at: Places, room: Floats, free: Floats
) -> Flags:
    """Return whose instances surely all find room on the other nodes.

    Args:
        loads: of the nodes.
        at: positions of the nodes among the places.
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
        # Each of these closes one node at most; the others have to close the rest.
        alone = np.minimum(big, before[left])
        enough = before[left] + (_MOST - 1) * alone
        short = np.nonzero(_least(wanted, room, free) <= enough)[0]
        # Similar sizes together: most nodes are excluded for all of them at once.
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
    """Return which nodes' tails surely find places."""
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
    """Instances of many nodes: sizes, the largest of their node, and their node."""

    memory: Floats
    disk: Floats
    largest: Floats
    home: Places

    def part(self, at: Places) -> "_SlotDemand":
        return _SlotDemand(
            self.memory[at], self.disk[at], self.largest[at], self.home[at]
        )

    def needs(self, taken: int) -> tuple[Floats, Floats]:
        """Return what must be left if so many others went to the same place."""
        disk = self.disk + taken * self.largest[:, 1]
        memory = self.memory + taken * self.largest[:, 0]
        return memory, np.where(self.disk < 0, -1.0, disk)


def _least(wanted: _SlotDemand, room: Floats, free: Floats) -> Ints:
    """Return the fewest others that close all places, memory and disk apart.

    Without a look at each place: sorted amounts are searched. The result may be too
    low.
    """
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


def _exact(wanted: _SlotDemand, room: Floats, free: Floats) -> Ints:
    """Return the fewest others that close all places, from a look at each place."""
    result = np.zeros(len(wanted.memory), np.int64)
    for taken in range(_MOST):
        memory, disk = wanted.needs(taken)
        near = (room > memory.min()) & (free > disk.min())
        fine = (room[near] > memory[:, None]) & (free[near] > disk[:, None])
        result += fine.sum(axis=1)
        result -= (room[wanted.home] > memory) & (free[wanted.home] > disk)
    return result


def may_fit(sizes: Ints, room: Floats) -> bool:
    """Return whether places suffice for the instances of each size and above."""
    least = np.array(sorted(set(sizes.tolist())))
    needed = (sizes[None, :] >= least[:, None]).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.ceil(room[None, :] / least[:, None]) - 1
    places[least == 0] = len(sizes) * (room > 0)
    return bool((np.maximum(0, places).sum(axis=1) >= needed).all())


def share_before(sizes: Ints, room: Floats) -> Floats:
    """Return [instance, place]: share of all before it that closes the place."""
    before = (np.cumsum(sizes) - sizes)[:, None]
    spare = np.maximum(0, room[None, :] - sizes[:, None])
    some = np.divide(spare, before, out=np.zeros(spare.shape), where=before > 0)
    out: Floats = np.where(before > 0, some, np.where(spare > 0, np.inf, 0.0))
    return out
