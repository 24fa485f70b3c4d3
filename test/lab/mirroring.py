"""Clusters with mirrored disks on the machines, for scenarios."""

import contextlib

#: Name of the volume group of each node.
GROUP = "xenvg"


@contextlib.contextmanager
def mirroring_cluster(machines, nodes, devices=("/dev/vdb",)):
    """A cluster for mirrored disks on machines, each with a volume group of devices."""
    for node in nodes:
        machines.check("vgcreate", "-q", "-f", "-y", GROUP, *devices, node=node)
    machines.check(
        *("gnt-cluster", "init", "--vg-name", GROUP, "--enabled-hypervisors", "fake"),
        *("--enabled-disk-templates", "drbd,plain", "--master-netdev", "br0"),
        *("-N", "link=br0", "--no-etc-hosts", "cluster.lab.test"),
    )
    for node in nodes[1:]:
        machines.check("gnt-node", "add", "--no-ssh-key-check", node)
    yield machines
    for node in nodes:
        machines.run("/usr/lib/ganeti/daemon-util", "stop-all", node=node)
    for entry in list(machines.lab.record["failed_disks"]):
        machines.lab.fail_disk(entry["machine"], entry["disk"], [])
    for node in nodes:
        # A mirror may still be active.
        machines.lab.power(node, "cycle")
        machines.run("vgremove", "-q", "-f", "-y", GROUP, node=node)
        wipe = (
            f"rm -rf /var/lib/ganeti/* /etc/ganeti/*; wipefs -qaf {' '.join(devices)}"
        )
        machines.run("sh", "-c", wipe, node=node)
