"""Clusters with mirrored disks on the machines, for scenarios."""

import contextlib

#: Name of the volume group of each node.
GROUP = "xenvg"


def join(machines, node, devices=("/dev/vdb",)):
    """Add a machine with a volume group to the cluster of the first one."""
    machines.check("vgcreate", "-q", "-f", "-y", GROUP, *devices, node=node)
    machines.check("gnt-node", "add", "--no-ssh-key-check", node)


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
