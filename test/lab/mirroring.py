"""Clusters with mirrored disks on the machines, for scenarios."""

import contextlib
import json
import re

#: Name of the volume group of each node.
GROUP = "xenvg"
_PRINT_CLUSTER = """
import sqlite3
db = sqlite3.connect("file:/var/lib/ganeti/store.db?mode=ro", uri=True)
print(*db.execute("SELECT CAST(data AS TEXT) FROM cluster").fetchone())
"""


def join(machines, node, devices=("/dev/vdb",)):
    """Add a machine with a volume group to the cluster of the first one."""
    machines.check("vgcreate", "-q", "-f", "-y", GROUP, *devices, node=node)
    machines.check("gnt-node", "add", "--no-ssh-key-check", node)


def ports(machines):
    """Return the last port that was ever in use, and the list of the released ones."""
    text = machines.check("python3", "-c", _PRINT_CLUSTER)
    cluster = json.loads(text)
    return cluster["highest_used_port"], cluster["tcpudp_port_pool"]


def active(machines, node):
    """Return the number of the minors that the kernel of a node uses."""
    kernel = machines.check("cat", "/proc/drbd", node=node)
    return len(re.findall(r"cs:(?!Unconfigured)", kernel))


def mapped(machines, node):
    """Return the number of the volumes that the kernel of a node uses."""
    names = machines.check("dmsetup", "ls", node=node)
    return len(re.findall(rf"^{GROUP}-", names, re.MULTILINE))


def clean(machines, nodes, devices=("/dev/vdb",)):
    """Leave machines as they were before they joined, and on."""
    wipe = "rm -rf /var/lib/ganeti/* /etc/ganeti/*; sync -f /var/lib/ganeti"
    for node in nodes:
        if machines.lab.machine(node).pid() is not None:
            # Daemons start with a machine that is a node.
            machines.run("sh", "-c", wipe, node=node)
        # Mirrors may still be active.
        machines.lab.power(node, "off")
    machines.lab.start([machines.lab.machine(node) for node in nodes])
    devices = " ".join(devices)
    for node in nodes:
        machines.run("/usr/lib/ganeti/daemon-util", "stop-all", node=node)
        remove = f"vgremove -q -f -y {GROUP}; wipefs -qaf {devices}; {wipe}"
        machines.run("sh", "-c", remove, node=node)


@contextlib.contextmanager
def mirroring_cluster(machines, nodes, devices=("/dev/vdb",)):
    """A cluster for mirrored disks on machines, each with a volume group of devices."""
    first, *others = nodes
    machines.check("vgcreate", "-q", "-f", "-y", GROUP, *devices, node=first)
    machines.check(
        *("gnt-cluster", "init", "--vg-name", GROUP, "--enabled-hypervisors", "fake"),
        *("--enabled-disk-templates", "drbd,plain", "--master-netdev", "br0"),
        *("-N", "link=br0", "--no-etc-hosts", "cluster.lab.test"),
    )
    for node in others:
        join(machines, node, devices)
    yield machines
    for entry in list(machines.lab.record["failed_disks"]):
        machines.lab.fail_disk(entry["machine"], entry["disk"], [])
    clean(machines, nodes, devices)
