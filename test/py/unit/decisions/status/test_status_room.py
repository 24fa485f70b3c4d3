"""Memory that instances need, and whether other nodes could take them over."""

from fakes import clusters
from ganeti.decisions.status import room


def made(*instances, nodes=3):
    snapshot = clusters.snapshot(nodes=nodes, instances=0)
    return clusters.changed(snapshot, *instances)


def up(number, primary=1, **backend):
    return clusters.instance(
        number,
        primary=primary,
        admin_state="up",
        beparams={"maxmem": 1024, "minmem": 512, "vcpus": 2, **backend},
    )


def uuid(number):
    return clusters.node_uuid(number)


def test_instances_that_should_run_count():
    down = clusters.instance(3, admin_state="down")
    wanted = room.needs(made(up(1), up(2, primary=2), down))
    assert (wanted.memory, wanted.vcpus) == (2048, 4)
    assert wanted.movable == {uuid(1): 512, uuid(2): 512}


def test_the_rest_of_the_group_must_hold_the_instances_of_a_node():
    snapshot = made(up(1), up(2), nodes=2)
    wanted = room.needs(snapshot)
    assert wanted.movable == {uuid(1): 1024}
    # The room on the node itself is lost with it.
    free = {uuid(1): 9999, uuid(2): 1024}
    assert room.shortages(snapshot, wanted, free) == []
    ((name, text),) = room.shortages(snapshot, wanted, {**free, uuid(2): 1023})
    assert name == snapshot.nodes[uuid(1)].name
    assert "(1024MiB needed, 1023MiB available)" in text


def test_nodes_that_take_no_instances_and_lost_ones_do_not_count():
    snapshot = made(up(1), nodes=2)
    wanted = room.needs(snapshot)
    free = {uuid(1): 0, uuid(2): 9999}
    drained = clusters.changed(snapshot, clusters.node(2, drained=True))
    assert len(room.shortages(drained, wanted, free)) == 1
    offline = clusters.changed(snapshot, clusters.node(1, offline=True))
    assert room.shortages(offline, wanted, {uuid(2): 0}) == []


def test_an_instance_that_is_not_moved_by_programs_needs_no_room_elsewhere():
    snapshot = made(up(1, auto_balance=False), nodes=1)
    wanted = room.needs(snapshot)
    assert (wanted.memory, dict(wanted.movable)) == (1024, {})


def test_a_mirror_needs_room_on_its_secondary_node():
    disk = clusters.drbd_disk("d1", 1, 2)
    instance = up(1).replace(disks=("d1",))
    snapshot = made(disk, instance, nodes=2)
    wanted = room.needs(snapshot)
    assert dict(wanted.movable) == {}
    assert room.shortages(snapshot, wanted, {uuid(2): 512}) == []
    ((name, text),) = room.shortages(snapshot, wanted, {uuid(2): 511})
    assert name == snapshot.nodes[uuid(2)].name
    assert "(512MiB needed, 511MiB available)" in text
