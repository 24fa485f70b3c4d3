"""The lab itself: what its machines have, and what tools/lab does to them."""

import pytest

from lab import lab as labs
from lab import product


def test_machines_have_what_disks_of_instances_need(machines):
    for name in ("lab1", "lab2"):
        assert "version: 8.4" in machines.check("cat", "/proc/drbd", node=name)
        targets = machines.check("dmsetup", "targets", node=name)
        assert "linear" in targets
        assert "snapshot" in targets
        # Installed, and without the tree that it was made from.
        version = machines.check("gnt-cluster", "--version", node=name)
        assert version.startswith("gnt-cluster (ganeti v")
        assert machines.run("test", "-e", product.TOP, node=name).returncode == 1


def test_disks_and_files_survive_a_power_cycle(machines):
    machines.check("pvcreate", "-q", "/dev/vdc", node="lab2")
    try:
        machines.check("sh", "-c", "echo kept > /etc/kept; sync", node="lab2")
        machines.lab.power("lab2", "cycle")
        assert machines.check("cat", "/etc/kept", node="lab2") == "kept\n"
        assert "/dev/vdc" in machines.check("pvs", "--noheadings", node="lab2")
    finally:
        machines.check("pvremove", "-q", "/dev/vdc", node="lab2")


def pings(machines, node, target):
    """Return whether a machine gets an answer of another one."""
    address = machines.lab.machine(target).address
    done = machines.run(
        "busybox", "ping", "-q", "-c", "2", "-W", "4", address, node=node
    )
    return done.returncode == 0


def arrives(machines, source, target):
    """Return whether frames of one machine reach another one, also without answers."""
    counter = "/sys/class/net/eth0/statistics/rx_packets"
    address = machines.lab.machine(target).address
    # No answer is wanted, so none is waited for: neighbours are set by hand.
    mac = machines.check("cat", "/sys/class/net/br0/address", node=target).strip()
    neighbour = ("ip", "neigh", "replace", address, "lladdr", mac, "dev", "br0")
    machines.check(*neighbour, "nud", "permanent", node=source)
    before = int(machines.check("cat", counter, node=target))
    send = f"for i in $(seq 300); do echo x > /dev/udp/{address}/9; done"
    machines.check("bash", "-c", f"({send}) 2> /dev/null; true", node=source)
    after = int(machines.check("cat", counter, node=target))
    machines.check("ip", "neigh", "del", address, "dev", "br0", node=source)
    return after - before >= 200


def test_cuts_drop_what_they_say(machines):
    assert pings(machines, "lab1", "lab2")
    machines.lab.cut("lab1")
    assert not pings(machines, "lab1", "lab2")
    assert pings(machines, "lab2", "lab3")
    machines.lab.join("lab1")
    machines.lab.cut("lab1", peer="lab2", direction="out")
    assert not pings(machines, "lab1", "lab2")
    assert pings(machines, "lab1", "lab3")
    assert not arrives(machines, "lab1", "lab2")
    assert arrives(machines, "lab2", "lab1")
    machines.lab.join()
    assert pings(machines, "lab1", "lab2")
    assert machines.lab.status()["cuts"] == []


def test_a_failed_disk_returns_errors_until_it_is_mended(machines):
    read = ("dd", "if=/dev/vdc", "of=/dev/null", "bs=4k", "count=1", "iflag=direct")
    write = ("dd", "if=/dev/zero", "of=/dev/vdc", "bs=4k", "count=1", "oflag=direct")
    machines.check(*read)
    machines.lab.fail_disk("lab1", 1, ["read", "write"])
    assert "Input/output error" in machines.refuse(*read)
    assert "Input/output error" in machines.refuse(*write)
    # The other disk, and other machines, are healthy.
    machines.check("dd", "if=/dev/vdb", "of=/dev/null", "bs=4k", "count=1")
    machines.check(*read, node="lab2")
    machines.lab.fail_disk("lab1", 1, ["write"])
    machines.check(*read)
    assert "Input/output error" in machines.refuse(*write)
    machines.lab.fail_disk("lab1", 1, [])
    machines.check(*write)
    assert machines.lab.status()["failed_disks"] == []


@pytest.mark.parametrize("name", ["lab9", "", "lab1;true"])
def test_an_unknown_machine_is_named(machines, name):
    with pytest.raises(labs.LabError, match="there are lab1, lab2, lab3"):
        machines.lab.power(name, "off")
