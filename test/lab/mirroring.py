"""Clusters with mirrored disks on the machines, for scenarios."""

import contextlib

#: Name of the volume group of each node.
GROUP = "xenvg"


def join(machines, node, devices=("/dev/vdb",)):
    """Add a machine with a volume group to the cluster of the first one."""
    machines.check("vgcreate", "-q", "-f", "-y", GROUP, *devices, node=node)
    machines.check("gnt-node", "add", "--no-ssh-key-check", node)


def cleaned(machines, node, devices=("/dev/vdb",)):
    """Leave a machine as it was before it joined, and on."""
    # A mirror may still be active.
    machines.lab.power(node, "cycle")
    machines.run("vgremove", "-q", "-f", "-y", GROUP, node=node)
    wipe = f"rm -rf /var/lib/ganeti/* /etc/ganeti/*; wipefs -qaf {' '.join(devices)}"
    machines.run("sh", "-c", wipe, node=node)


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
    for node in nodes:
        machines.run("/usr/lib/ganeti/daemon-util", "stop-all", node=node)
    for entry in list(machines.lab.record["failed_disks"]):
        machines.lab.fail_disk(entry["machine"], entry["disk"], [])
    for node in nodes:
        cleaned(machines, node, devices)
