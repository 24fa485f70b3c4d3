"""Relations of a snapshot."""

import msgspec
import pytest

from fakes import cluster
from ganeti.model.objects import Update

NODE1 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3301"
NODE2 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3302"
WEB1 = "e19b7a34-0f4d-4d27-b6c2-70a1b2c3d401"
DISK = "3b6f8c15-9e2a-4f70-8c4d-a1b2c3d4e501"


@pytest.fixture
def snapshot():
    return cluster.example()


def test_a_mirrored_instance_has_a_secondary(snapshot):
    web1 = snapshot.instances[WEB1]
    assert snapshot.instance_nodes(web1) == (NODE1, NODE2)
    assert snapshot.secondary_nodes(web1) == (NODE2,)
    assert snapshot.secondary_instances(NODE2) == {WEB1}
    assert snapshot.secondary_instances(NODE1) == frozenset()
    assert snapshot.disk_template(web1) == "drbd"


def test_the_address_of_a_drbd_disk_says_its_nodes(snapshot):
    disk = snapshot.disks[DISK].replace(nodes=())
    snapshot = snapshot.apply([Update("disks", DISK, disk)])
    assert snapshot.secondary_nodes(snapshot.instances[WEB1]) == (NODE2,)
    assert snapshot.secondary_instances(NODE2) == {WEB1}


def test_a_shared_disk_does_not_make_its_old_node_a_secondary(snapshot):
    disk = snapshot.disks[DISK].replace(
        dev_type="sharedfile", logical_id=("loop", "/x"), nodes=(NODE1,)
    )
    web1 = snapshot.instances[WEB1].replace(primary_node=NODE2)
    snapshot = snapshot.apply(
        [Update("disks", DISK, disk), Update("instances", WEB1, web1)]
    )
    assert snapshot.instance_nodes(web1) == (NODE2,)
    assert snapshot.secondary_instances(NODE1) == frozenset()
    assert snapshot.disks_on_node(NODE1) == {DISK}


def test_a_disk_that_lists_a_node_twice_can_be_changed(snapshot):
    twice = snapshot.disks[DISK].replace(nodes=(NODE1, NODE1))
    snapshot = snapshot.apply([Update("disks", DISK, twice)])
    snapshot = snapshot.apply([Update("disks", DISK, twice.replace(nodes=(NODE2,)))])
    assert snapshot.disks_on_node(NODE1) == frozenset()


def test_names_and_disks_can_change_hands_in_one_step(snapshot):
    web1 = snapshot.instances[WEB1]
    web2 = web1.replace(uuid="i2", name="web2", disks=(), nics=())
    snapshot = snapshot.apply([Update("instances", "i2", web2)])
    snapshot = snapshot.apply(
        [
            Update("instances", "i2", web2.replace(name=web1.name, disks=(DISK,))),
            Update("instances", WEB1, web1.replace(name="web2", disks=())),
        ]
    )
    assert snapshot.uuid_of("instances", web1.name) == "i2"
    assert snapshot.uuid_of("instances", "web2") == WEB1
    assert snapshot.disk_owner(DISK) == "i2"
    assert snapshot.mac_owner(web1.nics[0].mac) == WEB1


def test_an_old_snapshot_stays_as_it_was(snapshot):
    newer = snapshot.apply([Update("instances", WEB1, None)])
    assert newer.revision == snapshot.revision + 1
    assert not newer.instances
    assert snapshot.uuid_of("instances", "web1.example.com") == WEB1


def test_changed_instances_are_those_whose_records_or_disks_are_others(snapshot):
    def after(table, uuid):
        record = snapshot.table(table)[uuid]
        other = msgspec.structs.replace(record, serial_no=record.serial_no + 1)
        return snapshot.apply([Update(table, uuid, other)])

    assert snapshot.changed_instances(snapshot) == set()
    assert after("nodes", NODE1).changed_instances(snapshot) == set()
    assert after("instances", WEB1).changed_instances(snapshot) == {WEB1}
    assert after("disks", DISK).changed_instances(snapshot) == {WEB1}
    assert snapshot.changed_instances(after("disks", DISK)) == {WEB1}
    gone = snapshot.apply([Update("instances", WEB1, None)])
    assert gone.changed_instances(snapshot) is None
    assert snapshot.changed_instances(gone) is None
