"""How many places refuse an instance, and why, without a matrix of pairs.

The counts are those of ``alloc.allocate``: each node, or each pair of nodes of a group,
counts for the first rule that refuses it. Rules become bounds once, so that many sizes
of an instance are tried quickly on one state. Work is O(n), not O(n^2).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ganeti.decisions.htools.capacity.node_tables import ABOVE_ZERO, most_cpus
from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.state.amounts import Flags, Floats, Ints, Places
from ganeti.decisions.htools.state.node_state import ClusterState

Codes = npt.NDArray[np.int8]
Counts = list[int]

_MOST: Final = len(constraints.KINDS) + 1


class Rejections:
    """Counts for sizes of an instance on one state, which must not change.

    The instances have no tags, run, and differ in memory, disk, CPUs and spindles.
    """

    def __init__(
        self, state: ClusterState, item: Instance, usable: Sequence[int]
    ) -> None:
        """Prepare.

        Args:
            state: without the instance.
            item: one of the new instances.
            usable: nodes that may be used, online.
        """
        self.state = state
        self.nodes: Places = np.array(list(usable), np.intp)
        self.groups = state.group[self.nodes]
        self.is_pair = item.template == "drbd"
        self._of_group = len(state.cluster.groups)
        self._policies: dict[tuple[int, bool], list[int]] = {}
        for at, node in enumerate(self.nodes.tolist()):
            # A policy asks for spindles in another way on exclusive storage.
            key = (int(state.group[node]), bool(state.exclusive[node]))
            self._policies.setdefault(key, []).append(at)
        self._primary = _Verdicts(_primary_rules(state, item), self.nodes)
        if not self.is_pair:
            return
        sizes = np.bincount(self.groups, minlength=self._of_group)
        self._partners = sizes[self.groups] - 1
        self._enough, self._short = (
            _Verdicts(_secondary_rules(state, item, is_short=short), self.nodes)
            for short in (False, True)
        )
        self._unallocated = state.unallocated[self.nodes]
        self._kept = state.r_mem[self.nodes]

    def primaries(self, item: Instance) -> Codes:
        """Return for each usable node the kind of refusal as primary, 0 for none."""
        own = self._primary.codes(item)
        for (group, exclusive), members in self._policies.items():
            rules = self.state.cluster.groups[group].policy
            checks = constraints.policy(item, rules, exclusive=exclusive)
            if checks:
                own[members] = checks[0]
        return own

    def secondaries(self, item: Instance) -> Codes:
        """Return the kinds as secondary of a node with no memory reserved for it."""
        return self._enough.codes(item)

    def counts(self, item: Instance) -> tuple[Counts, int]:
        """Return refused places by kind (order of ``KINDS``), and possible ones.

        The primary matters only for the memory reserved for it: each secondary has one
        kind where the memory is enough, and another one where it is not.
        """
        own = self.primaries(item)
        if not self.is_pair:
            return _listed(np.bincount(own, minlength=_MOST))
        fine = own == 0
        # A primary that is refused is refused with each of its partners.
        result = np.bincount(own, np.where(fine, 0, self._partners), _MOST)
        if not fine.any():
            return _listed(result)
        enough = self.secondaries(item)
        short = self._short.codes(item)
        number = np.bincount(self.groups, fine, self._of_group)
        # Assume enough memory for every pair, then correct the pairs without.
        result += np.bincount(enough, number[self.groups] - fine, _MOST)
        # Only these can lack memory, for whichever primary.
        close = self._unallocated <= self._kept + item.reserved_memory
        at = np.nonzero(close & (enough != short))[0]
        if len(at):
            wrong = self._lacking(at, fine, item.reserved_memory)
            result -= np.bincount(enough[at], wrong, _MOST)
            result += np.bincount(short[at], wrong, _MOST)
        return _listed(result)

    def _lacking(self, at: Places, fine: Flags, reserve: int) -> Ints:
        """Count for some secondaries the primaries for which they lack memory."""
        firsts = np.nonzero(fine)[0]
        kept = self.state.peers[np.ix_(self.nodes[at], self.nodes[firsts])] + reserve
        lack = self._unallocated[at, None] <= kept
        lack &= self.groups[firsts] == self.groups[at, None]
        lack &= firsts != at[:, None]
        return np.asarray(lack.sum(axis=1))

    def pairs(self, item: Instance) -> tuple[Places, Places, Flags]:
        """Return nodes fit as primary, as secondary, and [primary, secondary]: both."""
        state = self.state
        rows = self.nodes[self.primaries(item) == 0]
        columns = self.nodes[self.secondaries(item) == 0]
        kept = state.peers[np.ix_(columns, rows)].T + item.reserved_memory
        enough = state.unallocated[columns] > np.maximum(kept, state.r_mem[columns])
        fine = state.group[rows][:, None] == state.group[columns]
        fine &= rows[:, None] != columns
        return rows, columns, fine & (enough | state.fails_n1[columns])


def counts(
    state: ClusterState, item: Instance, usable: Sequence[int]
) -> tuple[Counts, int]:
    """Return refused places by kind (order of ``KINDS``), and possible ones."""
    return Rejections(state, item, usable).counts(item)


def _listed(result: npt.NDArray[np.float64 | np.int64]) -> tuple[Counts, int]:
    return [int(number) for number in result[1:]], int(result[0])


#: A rule: kind of refusal, amount of the instance, amounts left, and the least.
_Rule = tuple[int, str, Floats, Floats | float]


def _disk_rules(state: ClusterState, item: Instance, suffix: str) -> Iterator[_Rule]:
    def amount(name: str) -> Floats:
        return np.asarray(getattr(state, name + suffix))

    if not item.local:
        return
    yield (
        constraints.DISK,
        "disk",
        amount("f_dsk"),
        np.maximum(ABOVE_ZERO, state.lo_dsk),
    )
    # Free spindles matter on exclusive storage only.
    least = np.where(state.exclusive, 0.0, -np.inf)
    yield constraints.SPINDLES, "spindles", amount("f_spin"), least
    used = amount("inst_spin") + np.where(state.exclusive, 0, item.spindle_use)
    yield constraints.DISK, "", -used, -state.hi_spin


def _primary_rules(state: ClusterState, item: Instance) -> Iterator[_Rule]:
    """Yield the rules of ``constraints.primary`` in their order."""
    memory, most = state.unallocated, most_cpus(state)
    yield constraints.MEM, "memory", memory, ABOVE_ZERO
    yield from _disk_rules(state, item, "")
    # > becomes >=; nodes that fail N+1 already are not refused for it.
    least = np.where(state.fails_n1, -np.inf, np.nextafter(state.r_mem, np.inf))
    yield constraints.MEM, "memory", memory, least
    yield constraints.CPU, "vcpus", -state.u_cpu, -most
    yield constraints.MEM, "memory", state.f_mem_later, ABOVE_ZERO
    yield from _disk_rules(state, item, "_later")
    yield constraints.CPU, "vcpus", -state.u_cpu_later, -most


def _secondary_rules(
    state: ClusterState, item: Instance, *, is_short: bool
) -> Iterator[_Rule]:
    """Yield the rules of ``constraints.secondary`` in their order.

    ``is_short``: the memory reserved for the primary is more than there is.
    """
    yield from _disk_rules(state, item, "")
    yield constraints.MEM, "reserve", state.unallocated, ABOVE_ZERO
    if is_short:
        # Too little memory by assumption: refused, unless the node fails already.
        least = np.where(state.fails_n1, -np.inf, np.inf)
        yield constraints.MEM, "", state.unallocated, least
    yield from _disk_rules(state, item, "_later")
    yield constraints.MEM, "reserve", state.f_mem_later, ABOVE_ZERO


class _Verdicts:
    """Rules of one role in order, as tables: rules x nodes."""

    def __init__(self, rules: Iterable[_Rule], nodes: Places) -> None:
        listed = list(rules)
        self._kinds = np.array([*(rule[0] for rule in listed), 0], np.int8)
        self._takes = [rule[1] for rule in listed]
        self._left = np.array([rule[2][nodes] for rule in listed])
        least = [np.broadcast_to(rule[3], rule[2].shape)[nodes] for rule in listed]
        self._least = np.array(least)
        # The last row stands for no refusal: argmax finds it if no rule fails.
        self._failed = np.ones((len(listed) + 1, len(nodes)), bool)

    def codes(self, item: Instance) -> Codes:
        """Return for each node the kind of the first rule that refuses, 0 for none."""
        amounts = {
            "": 0,
            "memory": item.memory,
            "reserve": item.reserved_memory,
            "disk": item.disk,
            "vcpus": item.vcpus,
            "spindles": item.spindles or 0,
        }
        taken = np.array([[float(amounts[name])] for name in self._takes])
        np.less(self._left - taken, self._least, out=self._failed[:-1])
        out: Codes = self._kinds[self._failed.argmax(axis=0)]
        return out
