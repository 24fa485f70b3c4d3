"""Procedures for migration, on source and target node."""

import logging
from typing import Any

import msgspec

from ganeti.model.objects.filled import InstanceX
from ganeti.node.calls.disks import disk_links
from ganeti.node.calls.guests import helper_marks, instances
from ganeti.node.calls.registry import LocalNode, procedure

logger = logging.getLogger(__name__)


@procedure("instance_migratable")
def instance_migratable(node: LocalNode, instance: InstanceX) -> None:
    """Fail unless the instance runs here and may be migrated."""
    node.hypervisor(instance.hypervisor).migratable(instance)


@procedure("migration_info")
def migration_info(node: LocalNode, instance: InstanceX) -> str:
    """Return the data that the target node needs."""
    return node.hypervisor(instance.hypervisor).migration_info(instance)


@procedure("accept_instance")
def accept_instance(
    node: LocalNode, instance: InstanceX, info: Any, target: str
) -> None:
    """Prepare to receive an instance on this node's address ``target``."""
    driver = node.hypervisor(instance.hypervisor)
    helper_marks.remove(node.paths, instance.name)
    disks = instances.attach_disks(node, instance)
    driver.accept(instance, str(info), target, disks)


@procedure("instance_migrate")
def instance_migrate(
    node: LocalNode, cluster_name: str, instance: InstanceX, target: str, live: bool
) -> None:
    """Start sending an instance to the address ``target``."""
    driver = node.hypervisor(instance.hypervisor)
    driver.migrate(instance, target, cluster_name=cluster_name, live=live)


@procedure("instance_get_migration_status")
def instance_get_migration_status(
    node: LocalNode, instance: InstanceX
) -> dict[str, Any]:
    """Return the status of an instance's migration."""
    status = node.hypervisor(instance.hypervisor).migration_status(instance)
    plain: dict[str, Any] = msgspec.to_builtins(status)
    return plain


@procedure("instance_finalize_migration_src")
def instance_finalize_migration_src(
    node: LocalNode, instance: InstanceX, success: bool, live: bool
) -> None:
    """Clean up after a migration, or let the guest continue here after a failure."""
    driver = node.hypervisor(instance.hypervisor)
    driver.finalize_source(instance, success=success, live=live)
    if success:
        disk_links.remove(node.paths, instance.name, len(instance.disks_info))


@procedure("instance_finalize_migration_dst")
def instance_finalize_migration_dst(
    node: LocalNode, instance: InstanceX, info: Any, success: bool
) -> None:
    """Take over an instance that has arrived, or clean up after a failure."""
    driver = node.hypervisor(instance.hypervisor)
    driver.finalize_destination(instance, str(info), success=success)
    if not success:
        disk_links.remove(node.paths, instance.name, len(instance.disks_info))
