"""Edits keep the configuration consistent, whatever their order."""

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from fakes import cluster
from fakes.store import open_memory
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.master import config
from ganeti.model.objects import Disk, Network

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
            edit.add_network(config.AddressPool.fresh(lan).result())
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
            edit.fill_candidate_pool()

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
TestEdits.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)
