"""Parts of a configuration that this release does not offer, as lines of text."""

from collections.abc import Collection
from typing import Final, NamedTuple

from ganeti.base.constants import disks as disk_constants
from ganeti.model.objects import Snapshot

#: Hypervisors whose instances are only known to run if this release has started them.
_UNSEEN: Final = ("chroot", "lxc")


class Findings(NamedTuple):
    """Results of a check.

    Attributes:
        obstacles: reasons that prevent the take-over.
        notes: parts that stay in the configuration but cannot be used.
    """

    obstacles: list[str]
    notes: list[str]


def of_configuration(snapshot: Snapshot, hypervisors: Collection[str]) -> Findings:
    """Return the parts of a configuration that this release does not offer.

    Args:
        snapshot: the configuration.
        hypervisors: the offered hypervisors.
    """
    templates = disk_constants.OFFERED_DISK_TEMPLATES
    cluster, obstacles, notes = snapshot.cluster, [], []
    for instance in snapshot.instances.values():
        if instance.hypervisor not in hypervisors:
            obstacles.append(
                f"instance {instance.name}: hypervisor {instance.hypervisor} is not"
                f" offered; offered are {', '.join(sorted(hypervisors))}"
            )
        elif instance.hypervisor in _UNSEEN and instance.admin_state == "up":
            obstacles.append(
                f"instance {instance.name}: hypervisor {instance.hypervisor}: whether"
                " it runs is not seen after the take-over, so it could be started"
                " twice; end it before, with gnt-instance shutdown"
            )
        kinds = {
            snapshot.disks[uuid].dev_type
            for uuid in instance.disks
            if uuid in snapshot.disks
        }
        obstacles += [
            f"instance {instance.name}: disk template {kind} is not offered; offered"
            f" are {', '.join(templates)}"
            for kind in sorted(kinds.difference(templates))
        ]
    obstacles += [
        f"cluster: hypervisor {name} is enabled but not offered; disable it with"
        " gnt-cluster modify --enabled-hypervisors"
        for name in cluster.enabled_hypervisors
        if name not in hypervisors
    ]
    notes += [
        f"cluster: disk template {name} is enabled but not offered; new disks of it"
        " cannot be created"
        for name in cluster.enabled_disk_templates
        if name not in templates
    ]
    if cluster.instance_communication_network:
        notes.append("cluster: instance communication is not offered")
    notes += [
        f"node {node.name}: is offline and is not taken over; when it is back, stop"
        " its daemons and run gnt-node add --readd"
        for node in snapshot.nodes.values()
        if node.offline
    ]
    return Findings(sorted(obstacles), sorted(notes))
