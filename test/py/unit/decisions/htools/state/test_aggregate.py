"""Columns of instances: those that are kept equal those that are made again."""

import msgspec
import numpy as np
import pytest

from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.state import aggregate

ITEMS = [
    Instance(
        name=f"web{number}",
        memory=number,
        disk=2 * number,
        vcpus=1,
        primary=number % 7,
        secondary=(number + 1) % 7 if number % 3 else -1,
        utilisation=(1.0, 2.0, float(number % 2), 4.0),
    )
    for number in range(100)
]


def other(item, **changes):
    return msgspec.structs.replace(item, **changes)


@pytest.mark.parametrize("count", [0, 1, 3, 60])
def test_columns_of_changed_instances_are_those_made_again(count):
    aggregate.columns_of(ITEMS)
    items = [
        other(item, primary=5, status="ADMIN_offline", utilisation=(9.0, 8.0, 7.0, 6.0))
        if place < count
        else item
        for place, item in enumerate(ITEMS)
    ]
    kept, made = aggregate.columns_of(items), aggregate.InstanceColumns(items)
    assert vars(kept).keys() == vars(made).keys()
    for name, column in vars(made).items():
        assert np.array_equal(getattr(kept, name), column), name
    assert aggregate.columns_of(ITEMS).primary.tolist() == [i.primary for i in ITEMS]
    assert len(aggregate.columns_of(ITEMS[:5]).primary) == 5


def test_instances_of_a_node_are_listed_with_the_newest_first():
    primaries, secondaries = aggregate.InstanceColumns(ITEMS).by_node(8)
    assert primaries == [
        [n for n in reversed(range(100)) if ITEMS[n].primary == node]
        for node in range(8)
    ]
    assert secondaries == [
        [n for n in reversed(range(100)) if ITEMS[n].secondary == node]
        for node in range(8)
    ]
    assert aggregate.InstanceColumns([]).by_node(2) == ([[], []], [[], []])
