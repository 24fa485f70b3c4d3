"""Instances on disks that DRBD mirrors between two machines."""

import pytest

from lab.mirroring import COMPLETE, GROUP, kernel, mirroring_cluster

WEB1 = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m", "-n", "lab1:lab2"),
)
VOLUMES = ("lvs", "--noheadings", "-o", "lv_name", GROUP)
DISKS = ("/dev/vdb", "/dev/vdc")


@pytest.fixture
def pair(machines):
    """A cluster of two machines with a volume group of two disks each."""
    with mirroring_cluster(machines, ["lab1", "lab2"], DISKS) as made:
        yield made


def test_data_is_on_both_nodes_before_and_after_a_failover(pair):
    machines = pair
    machines.check(*ADD, "--disk", "0:size=64m", WEB1)
    for node in ("lab1", "lab2"):
        assert COMPLETE in kernel(machines, node)
    device = "/dev/drbd0"
    machines.check("sh", "-c", f"echo kept > {device}; sync {device}")
    listed = machines.check("gnt-instance", "info", WEB1)
    assert "in sync, status ok" in listed
    assert "nodeB: lab2.lab.test, minor=0" in listed
    # Nobody but the nodes gets the shared secret.
    shown = machines.check("drbdsetup", "show", "resource0")
    secret = shown.partition('shared-secret   \t"')[2].partition('"')[0]
    assert len(secret) == 40
    assert secret not in listed
    assert machines.run("grep", "-rlF", secret, "/var/log/ganeti").stdout == ""
    machines.check("gnt-instance", "grow-disk", "--ignore-ipolicy", WEB1, "0", "32m")
    assert machines.check("blockdev", "--getsize64", device).strip() == str(96 << 20)
    machines.check("gnt-instance", "start", WEB1)
    machines.check("gnt-instance", "migrate", "-f", WEB1)
    assert "ro:Primary/Secondary" in kernel(machines, "lab2")
    # Both nodes may be primary only during the migration.
    for node in ("lab1", "lab2"):
        assert "two-primaries" not in machines.check("drbdsetup", "show", node=node)
    machines.check("gnt-instance", "failover", "-f", WEB1)
    assert "ro:Primary/Secondary" in kernel(machines, "lab1")
    machines.check("gnt-instance", "stop", WEB1)
    machines.check("gnt-instance", "failover", "-f", WEB1)
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
    assert "ro:Primary/Secondary" in kernel(machines, "lab2")
    assert machines.check("head", "-n", "1", device, node="lab2") == "kept\n"
    machines.check("gnt-instance", "deactivate-disks", WEB1)
    assert "cs:" not in kernel(machines, "lab1") + kernel(machines, "lab2")
    # Without a copy, the volumes of the primary node become the disks.
    machines.check("gnt-instance", "modify", "-t", "plain", WEB1)
    (name,) = machines.check(*VOLUMES, node="lab2").split()
    assert machines.check(*VOLUMES, node="lab1") == ""
    path = f"/dev/{GROUP}/{name}"
    assert machines.check("head", "-n", "1", path, node="lab2") == "kept\n"
    machines.check("gnt-instance", "remove", "-f", WEB1)
    assert "ERROR" not in machines.check("gnt-cluster", "verify")
    for node in ("lab1", "lab2"):
        assert machines.check(*VOLUMES, node=node) == ""


def segments(machines, node):
    """Return suffix of the name, stripes, and their KiB, of the volumes' segments."""
    text = machines.check(
        *("lvs", "--segments", "--noheadings", "--units", "k", "--nosuffix"),
        *("-o", "lv_name,stripes,stripe_size", GROUP),
        node=node,
    )
    rows = [row.split() for row in text.splitlines()]
    return {
        (name.rpartition("_")[2], int(count), int(float(size)))
        for name, count, size in rows
    }


# Takes minutes with its cluster.
@pytest.mark.long
def test_the_volumes_of_a_mirror_have_stripes_also_where_they_have_grown(pair):
    machines = pair
    grow = ("gnt-instance", "grow-disk", "--ignore-ipolicy", WEB1, "0")
    device = ("blockdev", "--getsize64", "/dev/drbd0")
    data, meta = ("data", 2, 256), ("meta", 2, 32)
    sizes = "data-stripe_size=256,meta-stripe_size=32"
    modify = ("gnt-cluster", "modify", "-D")
    machines.check(*modify, f"drbd:data-stripes=2,meta-stripes=2,{sizes}")
    machines.check(*ADD, "--disk", "0:size=64m", WEB1)
    for node in ("lab1", "lab2"):
        assert segments(machines, node) == {data, meta}
    machines.check(*grow, "32m")
    assert machines.check(*device).strip() == str(96 << 20)
    for node in ("lab1", "lab2"):
        assert segments(machines, node) == {data, meta}
    # A secondary with space on one disk alone grows by an odd number of extents.
    machines.check("pvchange", "-x", "n", DISKS[1], node="lab2")
    machines.check(*grow, "4m")
    assert machines.check(*device).strip() == str(100 << 20)
    assert segments(machines, "lab1") == {data, meta}
    assert segments(machines, "lab2") == {("data", 1, 0), data, meta}
    for node in ("lab1", "lab2"):
        assert COMPLETE in kernel(machines, node)
    machines.check("gnt-instance", "remove", "-f", WEB1)
