"""Places that surely suffice: never promised where instances find none."""

import itertools
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.n1 import slot_count

_SIZES = st.tuples(st.integers(1, 4), st.integers(1, 4))
_PLACES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=4
)


def _item(memory: int, disk: int) -> Instance:
    return Instance(
        name="a", memory=memory, disk=disk, vcpus=1, primary=0, template="plain"
    )


def _always_fits(sizes: list[tuple[int, int]], places: list[tuple[int, int]]) -> bool:
    """Try every choice of places for each instance in order."""
    if not sizes:
        return True
    memory, disk = sizes[0]
    open_ = [n for n, (m, d) in enumerate(places) if m > memory and d > disk]
    after = [
        [(m - memory, d - disk) if n == at else (m, d) for n, (m, d) in pairs]
        for at, pairs in itertools.product(open_, [list(enumerate(places))])
    ]
    return bool(open_) and all(_always_fits(sizes[1:], one) for one in after)


def _certain(sizes: list[tuple[int, int]], places: list[tuple[int, int]]) -> bool:
    items = [_item(*size) for size in sizes]
    actual = slot_count.certain(
        [slot_count.load(items, is_allowed=True)],
        np.array([0]),
        np.array([float(memory) for memory, _disk in places]),
        np.array([float(disk) for _memory, disk in places]),
    )
    return bool(actual[0])


@given(sizes=st.lists(_SIZES, min_size=1, max_size=4), places=_PLACES)
def test_what_is_certain_fits_whatever_went_where(
    sizes: list[tuple[int, int]], places: list[tuple[int, int]]
) -> None:
    sizes = sorted(sizes, reverse=True)
    if _certain(sizes, places):
        assert _always_fits(sizes, places[1:])


@given(
    sizes=st.lists(st.tuples(_SIZES, st.integers(1, 3)), min_size=1, max_size=3),
    places=_PLACES,
)
def test_rows_of_equals_are_certain_only_if_they_always_fit(
    sizes: list[tuple[tuple[int, int], int]], places: list[tuple[int, int]]
) -> None:
    rows = [size for size, times in sizes for _ in range(times)][:5]
    with mock.patch.object(slot_count, "_RUN", 2):
        if _certain(rows, places):
            assert _always_fits(rows, places[1:])


def test_many_equals_are_certain_where_as_many_fit() -> None:
    rows = [(9, 9), *[(2, 2)] * 8]
    # One of the large ones closes as many of the small places as fit into it.
    assert _certain(rows, [(0, 0), (27, 27), (5, 5)])
    assert not _certain(rows, [(0, 0), (22, 22), (5, 5)])


def test_plenty_of_room_is_certain() -> None:
    assert _certain([(4, 4), (2, 2), (1, 1)], [(0, 0), (9, 9), (9, 9)])


def test_the_own_node_is_no_place() -> None:
    assert not _certain([(4, 4)], [(9, 9), (4, 9)])


def test_what_policy_forbids_is_never_certain() -> None:
    load = slot_count.load([_item(1, 1)], is_allowed=False)
    room = np.array([9.0, 9.0])
    assert not slot_count.certain([load], np.array([0]), room, room)[0]
