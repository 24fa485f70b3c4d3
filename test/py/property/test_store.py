"""Copies converge, whatever happens to the calls; serials and address pools never lie."""

import contextlib
import random
import shutil
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import cluster
from fakes.candidates import Candidates
from fakes.patience import until
from fakes.seeds import examples
from fakes.store import open_memory
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.master import config
from ganeti.model import objects
from ganeti.model.objects import Network, Snapshot, Update
from ganeti.store import Document, database, features, pools, wire

NODES = (0, 1, 2)
EVENTS = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 3)),
    st.tuples(st.just("address"), st.integers(0, 4095)),
    st.tuples(
        st.sampled_from(["down", "lose", "heal", "purge", "failover"]),
        st.sampled_from(NODES),
    ),
    st.tuples(st.just("restart"), st.just(0)),
)


class Simulation:
    """Three candidates in one folder; one of them is the master."""

    def __init__(self, folder):
        self.folder = folder
        self.candidates = Candidates(folder, NODES)
        self.expected = {}
        self.addresses = "0" * 4096
        self.count = 0
        self.open(0)
        self.db.commit(cluster.big(3, 1))

    def open(self, master):
        self.master = master
        self.db = store.open_master(
            self.candidates[master].path,
            replicate=self.candidates.replicate,
            clock=SystemClock(),
            node=self.candidates.node(master),
            # Without a majority, commits would wait for it.
            settings=store.CommitSettings(is_lenient=lambda: True),
            seen_term=max(self.candidates[n].status()["term"] for n in NODES),
        )

    def run(self, event, number):
        node = self.candidates.node(number % len(NODES))
        if event == "commit":
            self.count += 1
            data = f"{self.count}".encode()
            self.db.commit([Document("jobs", str(number), data)])
            self.expected[str(number)] = data
        elif event == "address":
            self.mark(number)
        elif event == "down":
            self.candidates.down.add(node)
        elif event == "lose":
            self.candidates.losing.add(node)
        elif event == "purge" and number != self.master:
            self.candidates[number].purge()
        elif event == "restart":
            self.db.close()
            self.open(self.master)
        elif event == "failover":
            self.fail_over(number)
        else:
            self.candidates.down.discard(node)
            self.candidates.losing.discard(node)

    def mark(self, index):
        """Change one address of a large network."""
        text = self.addresses
        bit = "1" if text[index] == "0" else "0"
        self.addresses = text[:index] + bit + text[index + 1 :]
        network = objects.Network(
            name="lan",
            network="10.0.0.0/20",
            uuid="net",
            serial_no=1,
            reservations=self.addresses,
        )
        self.db.commit([objects.Update("networks", "net", network)])

    def fail_over(self, number):
        """Make another node the master, as an administrator could at any time."""
        is_current = self.position(number) == self.position(self.master)
        copy = self.position(number)
        if copy is None or not copy[2][0]:
            return  # a node without a copy, or with an empty one, cannot be master
        self.db.close()
        self.open(number)
        if not is_current:
            self.expected = dict(self.db.scan("jobs"))
            network = self.db.snapshot().networks.get("net")
            self.addresses = network.reservations if network else "0" * 4096

    def position(self, number):
        with contextlib.suppress(errors.ConfigurationError):
            path = self.candidates[number].path
            actual = database.Database(path, create=False)
            try:
                jobs = dict(actual.tables.scan_some("jobs", None, ""))
                records = actual.load()[0]
                tables = dict(records.nodes), dict(records.networks)
                return actual.position(), jobs, tables
            finally:
                actual.close()
        return None

    def has_addresses(self):
        network = self.db.snapshot().networks.get("net")
        return self.addresses == (network.reservations if network else "0" * 4096)

    def is_converged(self):
        first, *others = [self.position(number) for number in NODES]
        return all(other == first for other in others)

    def close(self):
        self.db.close()
        self.candidates.close()


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(EVENTS, max_size=12))
def test_copies_converge_after_any_faults(events):
    folder = tempfile.mkdtemp(prefix="store-test-")
    simulation = Simulation(folder)
    try:
        for event, number in events:
            simulation.run(event, number)
        simulation.candidates.down.clear()
        simulation.candidates.losing.clear()
        simulation.run("commit", 0)  # a purged copy is noticed by the next change
        until(f"copies after {events}", simulation.is_converged)
        assert dict(simulation.db.scan("jobs")) == simulation.expected
        assert simulation.has_addresses()
    finally:
        simulation.close()
        shutil.rmtree(folder)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["instance", "node", "cluster", "state", "stale", "port"]),
        st.booleans(),
    ),
    max_size=15,
)


@settings(deadline=None, max_examples=examples(50))
@given(CHANGES)
def test_serials_count_changes(changes):
    db = open_memory()
    db.commit(cluster.updates(cluster.example_data()))
    conf = config.Config(db, SystemClock())
    serials = {"cluster": 4, "node": 1, "instance": 2, "top": 0}
    for kind, flag in changes:
        with contextlib.suppress(errors.ConfigurationError), conf.edit("x") as edit:
            node = next(iter(edit.snapshot.nodes.values()))
            guest = next(iter(edit.snapshot.instances.values()))
            bump(edit, kind, flag, node, guest, serials)
    now = conf.snapshot()
    assert now.cluster.serial_no == serials["cluster"]
    assert next(iter(now.nodes.values())).serial_no == serials["node"]
    assert next(iter(now.instances.values())).serial_no == serials["instance"]
    assert conf.header().serial_no == serials["top"]
    db.close()


def bump(edit, kind, flag, node, guest, serials):
    """Do one change and note what it should add."""
    if kind == "stale":
        edit.update(guest.replace(serial_no=guest.serial_no + 3, os="x"))
    serials["top"] += kind != "state" or guest.disks_active != flag
    if kind == "instance":
        serials["instance"] += 1
        edit.update(guest.replace(tags=("x",) if flag else ()))
    elif kind == "node":
        serials["node"] += 1
        serials["cluster"] += 1
        edit.update(node.replace(powered=flag))
    elif kind == "cluster":
        serials["cluster"] += 1
        edit.update_cluster(maintain_node_health=flag)
    elif kind == "state":
        serials["instance"] += guest.disks_active != flag
        if guest.disks_active != flag:
            edit.update(guest.replace(disks_active=flag))
    else:
        edit.allocate_port()


# Address pools in rows: what was written is what is read, whoever reads it and how.

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
POOL_CHANGES = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(["change", "change", "change", "remove", "rename", "small"]),
    ARRAYS,
    ARRAYS,
)
#: Changes of one group, and how often a reader of the file takes it over.
GROUPS = st.tuples(st.lists(POOL_CHANGES, min_size=1, max_size=5), st.integers(1, 2))


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


@settings(deadline=None, max_examples=examples(200))
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


@settings(deadline=None, max_examples=examples(50))
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
