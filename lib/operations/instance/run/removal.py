"""Removal of an instance that is stopped: its disks, then its record."""

from ganeti.base import errors
from ganeti.model import objects
from ganeti.operations import base
from ganeti.operations.instance.disks import disks_on_nodes as disks


def remove(
    ctx: base.Context, instance: objects.Instance, *, ignore_failures: bool
) -> None:
    """Remove the disks and the record.

    Raises:
        OpExecError: a disk could not be removed, and failures are not ignored.
    """
    attached = ctx.snapshot.instance_disks(instance)
    if not disks.remove_all(ctx, instance, attached):
        if not ignore_failures:
            raise errors.OpExecError(
                f"instance {instance.name}: not all of its disks could be removed"
            )
        ctx.log.warn(
            "not all disks could be removed, going on because failures are ignored"
        )
    with ctx.config.edit(ctx.owner) as edit:
        edit.remove_instance(instance.uuid)
