"""Copies converge, whatever happens to the calls; serials never lie."""

import contextlib
import shutil
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import cluster
from fakes.candidates import Candidates
from fakes.patience import until
from fakes.store import open_memory
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.master import config
from ganeti.model import objects
from ganeti.store import Document
from ganeti.store.file import database

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
                jobs = dict(actual.scan_some("jobs", None, ""))
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


@settings(deadline=None, max_examples=30)
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


@settings(deadline=None, max_examples=50)
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
        edit.set_instance_state(guest.uuid, disks_active=flag)
    else:
        edit.allocate_port()
