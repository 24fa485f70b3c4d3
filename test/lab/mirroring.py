"""Clusters with mirrored disks on the machines, for scenarios."""

import contextlib
import json
import re

#: Name of the volume group of each node.
GROUP = "xenvg"
#: Words of the kernel for a mirror with all data on both nodes.
COMPLETE = "ds:UpToDate/UpToDate"
_FIRST_PORT = 11000
_ABOUT_DISKS = re.compile(
    "ERROR:E(NODEORPHANLV|NODEDRBD|NODELVM|INSTANCE(?!POLICY)[A-Z]*):"
)
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
    return len(re.findall(r"cs:(?!Unconfigured)", kernel(machines, node)))


def mapped(machines, node):
    """Return the number of the volumes that the kernel of a node uses."""
    names = machines.check("dmsetup", "ls", node=node)
    return len(re.findall(rf"^{GROUP}-", names, re.MULTILINE))


def shell(machines, script, node="lab1"):
    """Run a script that must succeed; return its output."""
    return machines.check("sh", "-c", script, node=node)


def kernel(machines, node):
    """Return what the kernel of a node says about its mirrors."""
    return machines.check("cat", "/proc/drbd", node=node)


def wait_until(machines, words, node):
    """Wait until the kernel of a node says something about its mirrors."""
    shell(machines, f"until grep -q '{words}' /proc/drbd; do sleep 0.2; done", node)


def volumes(machines, node):
    """Return the names of the volumes of a node."""
    argv = ("lvs", "--noheadings", "-o", "lv_name", GROUP)
    return sorted(machines.check(*argv, node=node).split())


def taken(machines, node):
    """Return how many volumes, device mapper's entries and minors a node uses.

    The last number is that of the minors that the configuration has.
    """
    listed = machines.check("gnt-node", "list-drbd", "--no-headers", node)
    count = len(volumes(machines, node))
    in_kernel = mapped(machines, node), active(machines, node)
    return count, *in_kernel, len(listed.splitlines())


def ports_in_use(machines):
    """Return the number of the ports that were given out and not released."""
    last, released = ports(machines)
    if last is None:
        return 0
    assert len(set(released)) == len(released), released
    return last - _FIRST_PORT + 1 - len(released)


def errors_of_verify(machines):
    """Return the lines of ``gnt-cluster verify`` about volumes, minors and instances.

    The policy, for which the guests are too small, is left out. Emulated machines often
    miss the time limits of verify's other checks.
    """
    text = machines.run("gnt-cluster", "verify", "--error-codes").stdout
    # It has come to its end.
    assert "Hooks Results" in text
    return [line for line in text.splitlines() if _ABOUT_DISKS.search(line)]


def fill(machines, node, size="100%FREE"):
    """Make a volume that leaves no other volume a place."""
    argv = ("lvcreate", "-q", "-y", "-an", "-Zn", "-l", size, "-n", "filler", GROUP)
    machines.check(*argv, node=node)


def empty(machines, node):
    """Undo `fill`."""
    machines.check("lvremove", "-q", "-f", "-y", f"{GROUP}/filler", node=node)


def kill_master(machines):
    """End the master daemon as a crash does."""
    shell(machines, "kill -9 $(cat /run/ganeti/ganeti-masterd.pid)")


def start_master(machines):
    """Start the master daemon again."""
    machines.check("/usr/lib/ganeti/daemon-util", "start", "ganeti-masterd")


def power_on(machines, node):
    """Start a machine; wait until the master gets answers of its node daemon."""
    machines.lab.start([machines.lab.machine(node)])
    row = f"gnt-node list --no-headers -o mtotal {node}"
    shell(machines, f"until {row} | grep -q M; do sleep 0.5; done")


@contextlib.contextmanager
def mirroring_cluster(
    machines, nodes, devices=("/dev/vdb",), *, name="cluster.lab.test"
):
    """A cluster for mirrored disks on machines, each with a volume group of devices."""
    first, *others = nodes
    machines.check("vgcreate", "-q", "-f", "-y", GROUP, *devices, node=first)
    machines.check(
        *("gnt-cluster", "init", "--vg-name", GROUP, "--enabled-hypervisors", "fake"),
        *("--enabled-disk-templates", "drbd,plain", "--master-netdev", "br0"),
        *("-N", "link=br0", "--no-etc-hosts", name),
    )
    for node in others:
        join(machines, node, devices)
    yield machines
    for entry in list(machines.lab.record["failed_disks"]):
        machines.lab.fail_disk(entry["machine"], entry["disk"], [])
    for node in nodes:
        machines.lab.leave(node, devices)
