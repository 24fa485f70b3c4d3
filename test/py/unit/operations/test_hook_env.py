"""Variables of hooks about kinds of disks and networks that few clusters have."""

import pytest

from fakes import clusters
from ganeti.model import objects
from ganeti.operations.instance.show import hook_env


def disk(kind, *where):
    return objects.Disk(
        uuid="d1", dev_type=kind, logical_id=where, size=1024, serial_no=1
    )


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (disk("plain", "xenvg", "lv1"), {"VG": "xenvg", "ID": "lv1"}),
        (disk("file", "loop", "/srv/f"), {"DRIVER": "loop", "ID": "/srv/f"}),
        (disk("sharedfile", "loop", "/srv/f"), {"DRIVER": "loop", "ID": "/srv/f"}),
        (disk("blockdev", "manual", "/dev/x"), {"DRIVER": "manual", "ID": "/dev/x"}),
        (disk("rbd", "rbd", "image"), {"DRIVER": "rbd", "ID": "image"}),
        (disk("ext", "box", "volume"), {"PROVIDER": "box", "ID": "volume"}),
    ],
)
def test_the_place_of_a_disk_by_its_kind(record, expected):
    assert hook_env._location_env(record) == expected


def test_the_place_of_a_mirror_is_that_of_both_volumes():
    mirror = clusters.drbd_disk("d1", 1, 2)
    actual = hook_env._location_env(mirror)
    assert {key: actual[key] for key in actual if key.endswith(("_VG", "_ID"))} == {
        "DATA_VG": "xenvg",
        "DATA_ID": "d1.data",
        "META_VG": "xenvg",
        "META_ID": "d1.meta",
    }


def test_a_network_has_the_variables_of_its_values():
    network = clusters.network(
        network="192.0.2.0/28",
        gateway="192.0.2.1",
        network6="2001:db8::/64",
        gateway6="2001:db8::1",
        mac_prefix="aa:00:01",
        tags=frozenset({"b", "a"}),
    )
    snapshot = clusters.snapshot(extra=[network])
    assert hook_env._network_env(snapshot, network.uuid) == {
        "NETWORK_NAME": "lan",
        "NETWORK_UUID": network.uuid,
        "NETWORK_TAGS": "a b",
        "NETWORK_SUBNET": "192.0.2.0/28",
        "NETWORK_GATEWAY": "192.0.2.1",
        "NETWORK_SUBNET6": "2001:db8::/64",
        "NETWORK_GATEWAY6": "2001:db8::1",
        "NETWORK_MAC_PREFIX": "aa:00:01",
    }


def test_a_network_that_is_gone_has_its_uuid_alone():
    assert hook_env._network_env(clusters.snapshot(), "w1") == {
        "NETWORK_NAME": "w1",
        "NETWORK_UUID": "w1",
        "NETWORK_TAGS": "",
    }
