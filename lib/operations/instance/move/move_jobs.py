"""Code shared by units that submit jobs which move many instances."""

from collections.abc import Sequence
from typing import Any

from ganeti.base.constants import disks
from ganeti.master import locking
from ganeti.model import objects
from ganeti.operations import base

_LEVELS = (locking.Level.INSTANCE, locking.Level.NODEGROUP, locking.Level.NODE)


def declare_shared(
    locks: base.LockRequest,
    *,
    instances: Sequence[str],
    groups: Sequence[str],
    nodes: Any,
) -> None:
    """Declare the locks for planning: instances by name, groups, nodes, all shared."""
    locks.names[locking.Level.INSTANCE] = list(instances)
    locks.names[locking.Level.NODEGROUP] = list(groups)
    locks.names[locking.Level.NODE] = nodes
    locks.shared.update(_LEVELS)


def instances_on(
    snapshot: objects.Snapshot, node: str, mode: str
) -> list[objects.Instance]:
    """Return the instances that leave a node, sorted by name.

    Args:
        snapshot: the configuration.
        node: its uuid.
        mode: ``primary-only``, ``secondary-only`` or ``all``.
    """
    uuids: set[str] = set()
    if mode in ("primary-only", "all"):
        uuids |= snapshot.primary_instances(node)
    if mode in ("secondary-only", "all"):
        uuids |= snapshot.secondary_instances(node)
    instances = [snapshot.instances[uuid] for uuid in uuids]
    return sorted(instances, key=lambda item: item.name)


def split_local_reservations(
    snapshot: objects.Snapshot, instances: Sequence[objects.Instance]
) -> tuple[list[objects.Instance], list[objects.Instance]]:
    """Return the forthcoming instances with local disks, and the other instances.

    Allocators do not move instances of such templates, as their data is on one node;
    forthcoming ones have none, so they move first.
    """
    local: list[objects.Instance] = []
    others: list[objects.Instance] = []
    for instance in instances:
        is_local = snapshot.disk_template(instance) not in disks.DTS_MIRRORED
        (local if instance.forthcoming and is_local else others).append(instance)
    return local, others


def names(instances: Sequence[objects.Instance]) -> list[str]:
    """Return instance names."""
    return [instance.name for instance in instances]
