"""Allocation with exclusive storage: keep room for the smallest sizes of the policy.

With exclusive storage on all nodes an even load matters little. The best placement
loses room for the fewest instances of the policy's minimum sizes.
"""

import functools
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.alloc import allocate
from ganeti.decisions.htools.model.cluster import NONE, Cluster, Instance
from ganeti.decisions.htools.model.policy import AllocPolicy, Spec
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.state.amounts import Flags
from ganeti.decisions.htools.state.node_state import ClusterState

#: Upper limit of counting: instances of size zero fit without limit.
_MANY: Final = 1 << 30


def applies(cluster: Cluster, group: int | None) -> bool:
    """Return whether all nodes that may be used have exclusive storage."""
    asked = [
        node
        for node in cluster.nodes
        if node.group == group
        or (
            group is None
            and cluster.groups[node.group].alloc_policy is not AllocPolicy.UNALLOCABLE
        )
    ]
    return all(node.exclusive for node in asked)


def cost_function(item: Instance) -> allocate.CostFunction:
    """Return the cost function for placing one instance."""
    return _Cost(item).of


class _Cost:
    """Cost of placing one instance; caches the counts of each node."""

    def __init__(self, item: Instance) -> None:
        self.item = item
        self.state: ClusterState | None = None
        self.tests: dict[int, list[Instance]] = {}
        self.before: dict[int, list[int]] = {}
        self.fits: dict[tuple[str, int], Flags] = {}
        self.after: dict[tuple[int, float], tuple[list[int], float]] = {}

    def of(self, state: ClusterState, nodes: tuple[int, ...]) -> allocate.Score:
        """Return how many fewer of each minimum size fit, and the disk left free."""
        # The counts hold for one state: a placement leads to another one.
        if self.state is not state:
            self.state = state
            self.before, self.after, self.fits = {}, {}, {}
        before = [self._before(state, node) for node in nodes]
        after = self._after(state, nodes)
        fewer = tuple(
            sum(one) - sum(two)
            for one, two in zip(
                zip(*before, strict=True),
                zip(*(counts for counts, _free in after), strict=True),
                strict=True,
            )
        )
        return fewer, sum(free for _counts, free in after)

    def _before(self, state: ClusterState, node: int) -> list[int]:
        """Return how many of each test instance fit now."""

        def fits(test: Instance, times: int) -> bool:
            # One check gives the answers of all nodes.
            key = test.name, times
            if key not in self.fits:
                self.fits[key] = _fits(state, test, times)
            return bool(self.fits[key][node])

        if node not in self.before:
            tests = self._tests(state, node)
            counts = [_most(functools.partial(fits, test)) for test in tests]
            self.before[node] = counts
        return self.before[node]

    def _after(
        self, state: ClusterState, nodes: tuple[int, ...]
    ) -> list[tuple[list[int], float]]:
        """Return counts and free disk of nodes that have the instance.

        A secondary's counts depend on the primary only by the memory it reserves.
        """
        # No memory is reserved on the primary, so its counts hold with any secondary.
        keys = [(nodes[0], -1.0)]
        if len(nodes) > 1:
            keys.append((nodes[1], self._reserved(state, *nodes)))
        if not all(key in self.after for key in keys):
            index = state.new(self.item)
            state.place(index, *nodes)
            for key in keys:
                node = key[0]
                counts = self._left(state, node)
                self.after[key] = counts, float(state.f_dsk[node])
            # The state belongs to the caller, and this was a trial.
            state.remove(index)
            state.forget(index)
        return [self.after[key] for key in keys]

    def _reserved(self, state: ClusterState, primary: int, secondary: int) -> float:
        more = 0 if self.item.forthcoming else self.item.reserved_memory
        there = float(state.peers[secondary, primary])
        return max(float(state.r_mem[secondary]), there + more)

    def _left(self, state: ClusterState, node: int) -> list[int]:
        """Return how many of each test instance fit on a changed node."""

        def fits(test: Instance, times: int) -> bool:
            return bool(_fits(state, test, times)[node])

        return [
            _fewer(functools.partial(fits, test), most)
            for test, most in zip(
                self._tests(state, node), self.before[node], strict=True
            )
        ]

    def _tests(self, state: ClusterState, node: int) -> list[Instance]:
        group = int(state.group[node])
        if group not in self.tests:
            ranges = state.cluster.policy_of(node).ranges
            # As in Ganeti: costs are compared in this order, the largest disk first.
            lows = sorted((low for low, _high in ranges), key=lambda low: -low.disk)
            self.tests[group] = [
                _test_instance(f"{group} {n}", low) for n, low in enumerate(lows)
            ]
        return self.tests[group]


def _test_instance(name: str, spec: Spec) -> Instance:
    # An instance without disks needs no spindles.
    return Instance(
        name=name,
        memory=spec.memory,
        disk=spec.disk,
        vcpus=spec.cpus,
        primary=NONE,
        template="plain",
        auto_balance=False,
        spindle_use=spec.spindles,
        spindles=0,
    )


def _most(fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits."""
    bad = 1
    while fits(bad):
        if bad > _MANY:
            return bad
        bad *= 2
    return _between(fits, bad // 2, bad)


def _fewer(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number that fits, searching downwards from ``most``."""
    # One instance takes the room of few others, so the result is near `most`.
    fine, bad, step = most, most + 1, 1
    while fine and not fits(fine):
        fine, bad, step = max(0, fine - step), fine, step * 2
    return _between(fits, fine, bad)


def _between(fits: Callable[[int], bool], fine: int, bad: int) -> int:
    while bad - fine > 1:
        middle = (fine + bad) // 2
        if fits(middle):
            fine = middle
        else:
            bad = middle
    return fine


def _fits(state: ClusterState, item: Instance, times: int) -> Flags:
    """Return the nodes on which ``times`` instances of one size fit.

    They fit exactly where one instance of ``times`` times the size fits: each rule
    bounds a sum, so the verdict about the last instance is the verdict about all.
    """
    several = msgspec.structs.replace(
        item,
        memory=item.memory * times,
        disk=item.disk * times,
        vcpus=item.vcpus * times,
        spindle_use=item.spindle_use * times,
    )
    codes = constraints.verdict(constraints.primary(state, several), state.size)
    return np.asarray(codes == 0)
