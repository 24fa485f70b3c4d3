"""Filled forms can be read by nodes and hold what each node must know."""

import msgspec

from fakes import cluster, clusters
from ganeti.model.objects.filled import InstanceX
from ganeti.protocols.rpc import encode, wire


def test_a_node_can_read_what_the_master_encodes():
    snapshot = cluster.example()
    (instance,) = snapshot.instances.values()
    data = encode.instance(snapshot, instance, hvparams={"boot_order": "n"})
    sent = msgspec.json.decode(msgspec.json.encode(wire.resolve(data, "nobody")))
    record = msgspec.convert(sent, InstanceX)
    assert record.hvparams["boot_order"] == "n"
    assert record.beparams["vcpus"]
    assert len(record.disks_info) == len(instance.disks)


def test_each_end_of_a_mirror_learns_its_own_minor():
    snapshot = cluster.example()
    (instance,) = snapshot.instances.values()
    disk = snapshot.disks[instance.disks[0]]
    first, second, port, first_minor, second_minor, _ = disk.logical_id
    data = encode.disk(snapshot, disk, instance)
    for here, there, minor in (
        (first, second, first_minor),
        (second, first, second_minor),
    ):
        ends = wire.resolve(data, here)["dynamic_params"]
        assert ends["local-minor"] == minor
        assert ends["port"] == port
        assert ends["remote-ip"] == snapshot.nodes[there].secondary_ip
    for child, prefix in zip(data["children"], ("data-", "meta-"), strict=True):
        for name in ("stripes", "stripe_size"):
            assert child["params"][name] == data["params"][prefix + name]


def test_volumes_of_a_mirror_without_owner_get_no_stripes_of_plain_disks():
    """An old record has no sizes for mirrors."""
    old = {"plain": {"stripes": 3, "stripe_size": 64}, "drbd": {"data-stripes": 2}}
    snapshot = clusters.snapshot(diskparams=old)
    wired = encode.disk(snapshot, clusters.drbd_disk("d1", 1, 2))
    assert [child["params"] for child in wired["children"]] == [
        {"stripes": 2, "stripe_size": 0},
        {"stripes": 1, "stripe_size": 0},
    ]


def test_private_parameters_are_in_the_private_form_alone():
    snapshot = cluster.example()
    (instance,) = snapshot.instances.values()
    instance = instance.replace(osparams_private={"password": "p1"})
    assert "p1" not in str(encode.instance(snapshot, instance))
    more = {"osparams_private": {"key": "p2"}, "osparams_secret": {"token": "p3"}}
    data = encode.private_instance(snapshot, instance, **more)
    assert data["osparams_private"] == {"password": "p1", "key": "p2"}
    assert data["osparams_secret"] == {"token": "p3"}
