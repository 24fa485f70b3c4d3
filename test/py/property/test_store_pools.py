"""Address pools in rows: what was written is what is read, whoever reads it and how."""

import contextlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base import errors
from ganeti.model.objects import Network, Snapshot, Update
from ganeti.store import features, pools, wire

SIZES = (None, 0, 16, 600, 1024, 1025, 4096)
KEYS = ("a", "b")
#: A change of one array: nothing, some addresses, all of it, another size.
ARRAYS = st.one_of(
    st.none(),
    st.tuples(st.just("toggle"), st.lists(st.integers(0, 4095), max_size=4)),
    st.tuples(st.just("fill"), st.sampled_from("01")),
    st.tuples(st.just("size"), st.sampled_from(SIZES)),
    st.tuples(st.just("odd"), st.sampled_from(["x", "é", " ", "_"])),
)
CHANGES = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(["change", "change", "change", "remove", "rename", "small"]),
    ARRAYS,
    ARRAYS,
)
#: Changes of one group, and how often a reader of the file takes it over.
GROUPS = st.tuples(st.lists(CHANGES, min_size=1, max_size=5), st.integers(1, 2))


def fresh(key):
    return Network(
        name=key,
        network="10.0.0.0/20",
        uuid=key,
        serial_no=1,
        reservations="0" * 4096,
        ext_reservations="1" + "0" * 4095,
    )


def changed_array(text, what):
    if what is None:
        return text
    kind, value = what
    if kind == "size":
        return None if value is None else (text or "").ljust(value, "0")[:value]
    if kind == "fill":
        return value * 4096
    cells = list(text or "0" * 4096)
    if kind == "odd":
        cells[len(cells) // 2] = value
        return "".join(cells)
    for index in value:
        if index < len(cells):
            cells[index] = "1" if cells[index] == "0" else "0"
    return "".join(cells)


def changed(network, key, kind, used, external):
    if kind == "remove":
        return None
    if kind == "small":
        return fresh(key).replace(reservations="0" * 8, ext_reservations=None)
    network = network or fresh(key)
    if kind == "rename":
        return network.replace(name=f"{network.name}x", serial_no=2)
    return network.replace(
        reservations=changed_array(network.reservations, used),
        ext_reservations=changed_array(network.ext_reservations, external),
    )


class Copy:
    """Rows as a file keeps them, and a follower that sees nothing but groups."""

    def __init__(self):
        self.rows = {}
        self.followed = Snapshot()

    def take(self, payload, times):
        changed_rows = wire.decode_rows(payload)
        for _ in range(times):
            for table, key, data in changed_rows:
                assert table == "networks"
                if data is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = data
        updates = wire.to_changes(changed_rows, self.followed)
        self.followed = self.followed.apply(updates)

    def loaded(self):
        return Snapshot().apply(wire.to_updates("networks", self.rows.items()))


@settings(deadline=None, max_examples=200)
@given(st.lists(GROUPS, max_size=10), st.integers(0, 10), st.integers(0, 10))
def test_what_is_read_is_what_was_written(groups, begins, joins):
    """The feature begins at one group; a second copy joins at another."""
    state, used, first, late = Snapshot(), frozenset(), Copy(), None
    for number, (changes, times) in enumerate(groups):
        if number == joins:
            late = Copy()
            late.rows, late.followed = dict(first.rows), first.loaded()
        staged, updates = state, []
        for key, kind, *arrays in changes:
            new = changed(staged.networks.get(key), key, kind, *arrays)
            updates.append(Update("networks", key, new))
            staged = staged.apply(updates[-1:])
        begun = used | ({features.POOL_ROWS} if number >= begins else set())
        if begun != used:
            updates = [
                *(Update("networks", *item) for item in state.networks.items()),
                *updates,
            ]
        payload = wire.encode_rows(wire.rows(updates, begun, wire.Stored(state, used)))
        state, used = staged, begun
        for copy in filter(None, (first, late)):
            copy.take(payload, times)
            assert dict(copy.followed.networks) == dict(state.networks)
            assert dict(copy.loaded().networks) == dict(state.networks)
        assert first.rows == (late or first).rows
        check_rows(first.rows, state, used)


def check_rows(rows, state, used):
    """No row is left of a pool that is gone, in another form, or all free."""
    owners = {pools.owner(key) for key in rows}
    assert owners == set(state.networks)
    for key, data in rows.items():
        if (uuid := pools.owner(key)) != key:
            assert features.POOL_ROWS in used
            assert pools.is_large(state.networks[uuid])
            assert data.strip(b"b\0")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 65535), min_size=1, max_size=20), st.integers(0, 99))
def test_a_change_costs_what_changed(indexes, seed):
    cells = list(f"{random.Random(seed).getrandbits(1 << 16):065536b}")
    old = fresh("a").replace(reservations="".join(cells))
    for index in indexes:
        cells[index] = "1" if cells[index] == "0" else "0"
    new = old.replace(reservations="".join(cells))
    before = wire.Stored(
        Snapshot().apply([Update("networks", "a", old)]), features.KNOWN
    )
    rows = wire.rows([Update("networks", "a", new)], features.KNOWN, before)
    assert len(rows) <= len(set(indexes))
    assert len(wire.encode_rows(rows)) <= 1 + 100 * len(indexes)


@given(st.binary(max_size=80), st.binary(max_size=80), st.integers(-1, 3000))
def test_damaged_rows_are_refused(head, chunk, size):
    """Whatever rows say, reading them ends with a network or one of our errors."""
    known = fresh("a")
    for rows in (
        [("a", head), ("a/u0000", b"b" + chunk)],
        [("a", b"[%d,null,{}]" % size), ("a/u0001", b"t" + chunk)],
        [("a/e0000", b"b" + chunk)],
    ):
        for old in (None, Snapshot().apply([Update("networks", "a", known)])):
            with contextlib.suppress(errors.ConfigurationError):
                if old is None:
                    wire.to_updates("networks", rows)
                else:
                    wire.to_changes([("networks", *row) for row in rows], old)
