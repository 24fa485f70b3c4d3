"""Allocation where instances have disks for themselves: keep room for the sizes sold.

With exclusive storage everywhere evenness means little: the best place is the one
after which the fewest instances of the policy's least sizes are lost.
"""

from collections.abc import Sequence

from ganeti.htools import alloc, model
from ganeti.htools import grid_checks as checks
from ganeti.htools.grid import State


def applies(cluster: model.Cluster, group: int | None) -> bool:
    """Return whether all nodes in question have exclusive storage."""
    asked = [
        node
        for node in cluster.nodes
        if node.group == group
        or (
            group is None
            and cluster.groups[node.group].alloc_policy
            is not model.AllocPolicy.UNALLOCABLE
        )
    ]
    return bool(asked) and all(node.exclusive for node in asked)


def metric(item: model.Instance) -> alloc.Metric:
    """Return the function that says what placing an instance on nodes costs."""

    def lost(state: State, nodes: tuple[int, ...]) -> alloc.Score:
        rules = state.cluster.policy_of(nodes[0])
        tests = [
            _test_instance(low)
            for low, _high in sorted(rules.ranges, key=lambda pair: -pair[0].disk)
        ]
        before = [_fitting(state, test, nodes) for test in tests]
        index = state.new(item)
        state.place(index, *nodes)
        after = [_fitting(state, test, nodes) for test in tests]
        free = sum(float(state.f_dsk[node]) for node in nodes)
        state.remove(index)
        state.forget(index)
        fewer = tuple(one - two for one, two in zip(before, after, strict=True))
        return fewer, free

    return lost


def _test_instance(spec: model.Spec) -> model.Instance:
    # Without a list of disks it needs no spindles.
    return model.Instance(
        name="test",
        memory=spec.memory,
        disk=spec.disk,
        vcpus=spec.cpus,
        primary=model.NONE,
        template="plain",
        auto_balance=False,
        spindle_use=spec.spindles,
        spindles=0,
    )


def _fitting(state: State, item: model.Instance, nodes: Sequence[int]) -> int:
    """Return how many of one size fit on some nodes, then take them off again."""
    count = 0
    for node in nodes:
        index = state.new(item)
        mark = state.mark(index, [node])
        while not checks.verdict(checks.primary(state, item), state.size)[node]:
            state.place(index, node)
            count += 1
        state.restore(mark)
        state.forget(index)
    return count
