"""Edits keep the configuration consistent, whatever their order: roles, indexes, reservations."""

import contextlib
import itertools

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from fakes import cluster, clusters
from fakes.reservation_walk import Walk
from fakes.seeds import examples
from fakes.store import open_memory
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.master import config
from ganeti.master.config import topology
from ganeti.model.objects import TABLES, Disk, Network, Snapshot, Update
from ganeti.operations.node import role

numbers = st.integers(0, 9)


def _order(record):
    return record.logical_id[2] if isinstance(record, Disk) else record.name


class Edits(RuleBasedStateMachine):
    """Does what logical units do, on one configuration."""

    @initialize()
    def open(self):
        self.store = open_memory()
        self.store.commit(cluster.updates(cluster.example_data()))
        self.conf = config.Config(self.store, SystemClock())
        base = self.conf.snapshot()
        self.guest = next(iter(base.instances.values()))
        self.drbd = next(iter(base.disks.values()))
        self.count = 0
        lan = Network(name="lan", network="192.0.2.128/29", uuid="lan", serial_no=1)
        with self.conf.edit("setup") as edit:
            topology.add_network(edit, config.AddressPool.fresh(lan).result())
            for group in edit.snapshot.nodegroups.values():
                edit.update(group.replace(networks={"lan": {}}))
        self.highest = {}

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()

    def pick(self, table, number):
        # By what does not depend on random uuids, so that a sequence can be repeated.
        records = sorted(self.conf.snapshot().table(table).values(), key=_order)
        return records[number % len(records)]

    def new_disk(self, owner, edit):
        nodes = self.drbd.logical_id[:2]
        minors = self.conf.reserve_minors(owner, nodes)
        secret = self.conf.reserve_secret(owner)
        uuid = self.conf.reserve_uuid(owner)
        return self.drbd.replace(
            uuid=uuid, logical_id=(*nodes, edit.allocate_port(), *minors, secret)
        )

    def new_nic(self, owner, with_address):
        nic = self.guest.nics[0].replace(
            uuid=self.conf.reserve_uuid(owner), mac=self.conf.reserve_mac(owner)
        )
        if not with_address:
            return nic
        with contextlib.suppress(errors.ReservationError):
            return nic.replace(network="lan", ip=self.conf.generate_ip(owner, "lan"))
        return nic

    @rule(with_address=st.booleans(), disks=st.integers(0, 2))
    def add_instance(self, with_address, disks):
        self.count += 1
        owner = f"job-{self.count}"
        nic = self.new_nic(owner, with_address)
        with self.conf.edit(owner) as edit:
            edit.add_instance(
                self.guest.replace(
                    uuid=self.conf.reserve_uuid(owner),
                    name=f"web{self.count}.example.org",
                    nics=(nic,),
                    network_port=edit.allocate_port(),
                ),
                [self.new_disk(owner, edit) for _ in range(disks)],
            )
        self.conf.release(owner)

    @precondition(lambda self: self.conf.snapshot().instances)
    @rule(number=numbers, keep=st.booleans())
    def remove_instance(self, number, keep):
        with self.conf.edit("x") as edit:
            edit.remove_instance(self.pick("instances", number).uuid, keep_disks=keep)

    @precondition(lambda self: self.conf.snapshot().instances)
    @rule(number=numbers, with_address=st.booleans())
    def change_nics(self, number, with_address):
        guest = self.pick("instances", number)
        nic = self.new_nic("nics", with_address)
        with self.conf.edit("nics") as edit:
            edit.update(guest.replace(nics=(*guest.nics[-1:], nic)))
        self.conf.release("nics")

    @precondition(lambda self: self.conf.snapshot().instances)
    @rule(number=numbers, index=st.integers(0, 1))
    def add_disk(self, number, index):
        guest = self.pick("instances", number)
        with self.conf.edit("disk") as edit:
            disk = self.new_disk("disk", edit)
            edit.add_disk(disk, guest.uuid, min(index, len(guest.disks)))
        self.conf.release("disk")

    @precondition(lambda self: self.conf.snapshot().disks)
    @rule(number=numbers, other=numbers)
    def move_disk(self, number, other):
        disk = self.pick("disks", number)
        with self.conf.edit("x") as edit:
            holder = edit.snapshot.disk_owner(disk.uuid)
            if holder is not None:
                edit.detach_disk(holder, disk.uuid)
            if edit.snapshot.instances:
                edit.attach_disk(self.pick("instances", other).uuid, disk.uuid, 0)

    @precondition(lambda self: self.conf.snapshot().disks)
    @rule(number=numbers)
    def remove_disk(self, number):
        with self.conf.edit("x") as edit:
            edit.remove_disk(self.pick("disks", number).uuid)

    @rule(number=numbers)
    def demote_and_refill(self, number):
        node = self.pick("nodes", number)
        if node.uuid == self.conf.snapshot().cluster.master_node:
            return
        with self.conf.edit("x") as edit:
            edit.update(node.replace(master_candidate=False))
            topology.fill_candidate_pool(edit)

    @precondition(lambda self: self.conf.snapshot().instances)
    @rule(number=numbers)
    def fail_over(self, number):
        guest = self.pick("instances", number)
        nodes = [*self.conf.snapshot().nodes]
        nodes.remove(guest.primary_node)
        with self.conf.edit("x") as edit:
            edit.set_primary_node(guest.uuid, nodes[0])

    @rule()
    def forget_a_mistake(self):
        before = self.conf.snapshot()
        with contextlib.suppress(ZeroDivisionError), self.conf.edit("x") as edit:
            edit.update_cluster(master_node="nobody")
            raise ZeroDivisionError
        assert self.conf.snapshot() is before

    @invariant()
    def is_consistent(self):
        if hasattr(self, "store"):
            assert config.verify(self.conf.snapshot()) == []

    @invariant()
    def serials_only_grow(self):
        if not hasattr(self, "store"):
            return
        now = self.conf.snapshot()
        for table in ("instances", "nodes", "disks", "networks"):
            for key, record in now.table(table).items():
                assert record.serial_no >= self.highest.get(key, 1)
                self.highest[key] = record.serial_no


TestEdits = Edits.TestCase
TestEdits.settings = settings(
    deadline=None, max_examples=examples(40), stateful_step_count=25
)


# No commit inside a valid reservation is refused, whatever happens around it.
#
# ``test/bench/run reservations`` does 100,000 operations.


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_reserved_can_be_created(seed):
    walk = Walk(seed)
    for _step in range(300):
        walk.step()
    walk.verify()
    assert walk.commits > 0
    assert walk.refused["OP_INSTANCE_CREATE"] > 0


# Roles of nodes: whatever is asked, the rules hold afterwards.

MAYBE = st.none() | st.booleans()
WANTED = st.builds(
    role.RoleRequest,
    offline=MAYBE,
    drained=MAYBE,
    master_candidate=MAYBE,
    master_capable=MAYBE,
    vm_capable=MAYBE,
    powered=MAYBE,
).filter(lambda w: sum(map(bool, (w.offline, w.drained, w.master_candidate))) <= 1)
STATE = st.sampled_from(["", "offline", "drained", "master_candidate"])


@st.composite
def clusters_with_a_node(draw):
    nodes = [
        clusters.node(
            number,
            offline=state == "offline",
            drained=state == "drained",
            master_candidate=state == "master_candidate",
            master_capable=state == "master_candidate" or draw(st.booleans()),
        )
        for number, state in enumerate(draw(st.lists(STATE, min_size=1)), start=2)
    ]
    return clusters.snapshot(
        nodes=1, extra=nodes, candidate_pool_size=draw(st.integers(1, 4))
    )


@hypothesis.settings(max_examples=examples(300), deadline=None)
@hypothesis.given(
    snapshot=clusters_with_a_node(),
    number=st.integers(1, 12),
    wanted=WANTED,
    has_oob=st.booleans(),
    auto=st.booleans(),
)
def test_a_plan_keeps_the_rules(snapshot, number, wanted, has_oob, auto):
    node = snapshot.nodes.get(clusters.node_uuid(number))
    hypothesis.assume(node is not None)
    try:
        plan = role.plan(snapshot, node, wanted, has_oob=has_oob, auto_promote=auto)
    except errors.OpPrereqError:
        return
    new = plan.node
    assert sum((new.offline, new.drained, new.master_candidate)) <= 1
    assert new.master_capable or not new.master_candidate
    assert plan.is_promoted == (new.master_candidate and not node.master_candidate)
    assert plan.is_demoted == (node.master_candidate and not new.master_candidate)
    for name in ("offline", "drained", "master_candidate", "vm_capable", "powered"):
        asked = getattr(wanted, name)
        if asked is not None and not (name == "master_candidate" and not asked):
            assert getattr(new, name) == asked
    if wanted.master_candidate is False:
        assert not new.master_candidate
    if node.uuid == snapshot.cluster.master_node:
        assert new.master_candidate
        assert not new.offline
    if plan.is_demoted and not auto:
        # Without promotions the pool stays as full as it can be.
        left = topology.pool_state(snapshot, ignore=(node.uuid,))
        assert left.current >= left.wanted or not topology.promotable(
            snapshot, ignore=(node.uuid,)
        )
    if plan.is_promoted and wanted.master_candidate is None:
        assert (
            topology.pool_state(snapshot).current < snapshot.cluster.candidate_pool_size
        )


# Indexes of snapshots are what a rebuild from scratch gives.

BASE = cluster.example()
NODE = next(iter(BASE.nodes.values()))
GROUP = next(iter(BASE.nodegroups.values()))
INSTANCE = next(iter(BASE.instances.values())).replace(network_port=None)
DISK = next(iter(BASE.disks.values()))

KEYS = [f"k{number}" for number in range(4)]
keys = st.sampled_from(KEYS)
some_keys = st.lists(keys, max_size=3)


def nodes(key):
    return st.builds(
        lambda group, short: NODE.replace(uuid=key, name=f"{short}.{key}", group=group),
        keys,
        st.sampled_from(["n", "N", "m"]),
    )


def disks(key):
    # Ports and minors belong to one disk.
    number = 10 * int(key[1:])
    port, minors = number, (number + 2, number + 3)
    return st.builds(
        lambda holders, kind: DISK.replace(
            uuid=key,
            dev_type=kind,
            nodes=tuple(holders),
            logical_id=(*(holders or ["k0", "k1"])[:2], port, *minors, "s"),
        ),
        some_keys,
        st.sampled_from(["drbd", "plain"]),
    )


def instances(key):
    # A disk belongs to one instance: those of instance k1 begin with k1.
    return st.builds(
        lambda home, owned, macs: INSTANCE.replace(
            uuid=key,
            name=f"i.{key}",
            primary_node=home,
            disks=tuple(owned),
            nics=tuple(INSTANCE.nics[0].replace(mac=f"{key}{mac}") for mac in macs),
        ),
        keys,
        st.lists(st.just(key), max_size=1),
        st.lists(st.integers(0, 2), max_size=2),
    )


def updates():
    def make(table, key, build):
        return st.builds(Update, st.just(table), st.just(key), build(key) | st.none())

    return st.one_of(
        [
            make(table, key, build)
            for table, build in (
                ("nodes", nodes),
                ("disks", disks),
                ("instances", instances),
            )
            for key in KEYS
        ]
    )


def rebuilt(snapshot):
    return Snapshot().apply(
        Update(table, key, record)
        for table in TABLES
        for key, record in snapshot.table(table).items()
    )


def index(snapshot):
    return {
        name: dict(rows.items()) for name, rows in snapshot._index.items() if len(rows)
    }


@settings(deadline=None)
@given(st.lists(st.lists(updates(), min_size=1, max_size=4), max_size=12))
def test_indexes_equal_a_rebuild(batches):
    snapshot = Snapshot()
    for batch in batches:
        before, old = snapshot, index(snapshot)
        snapshot = snapshot.apply(batch)
        assert index(snapshot) == index(rebuilt(snapshot))
        assert index(before) == old  # snapshots of readers do not change


@settings(deadline=None)
@given(st.lists(updates(), max_size=30))
def test_relations_equal_a_look_at_every_record(changes):
    now = Snapshot().apply(changes)
    for key in KEYS:
        assert now.nodes_in_group(key) == {
            uuid for uuid, node in now.nodes.items() if node.group == key
        }
        assert now.primary_instances(key) == {
            uuid for uuid, item in now.instances.items() if item.primary_node == key
        }
        assert now.secondary_instances(key) == {
            uuid
            for uuid, item in now.instances.items()
            if item.primary_node != key
            and any(
                disk in now.disks
                and now.disks[disk].dev_type == "drbd"
                and key in (now.disks[disk].nodes or now.disks[disk].logical_id[:2])
                for disk in item.disks
            )
        }
    shorts = itertools.groupby(
        sorted(now.nodes.values(), key=lambda n: n.name.lower()),
        lambda n: n.name.split(".")[0].lower(),
    )
    for short, group in shorts:
        assert now.same_host("nodes", short) == {node.uuid for node in group}
