"""Checks of disks on shared storage: their providers, and how guests access them."""

from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks as constants
from ganeti.base.constants import ecodes
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.protocols.rpc import calls

#: Parameters of disks in general; the others are the provider's.
_GENERAL: Final = frozenset({"access"})
#: Hypervisors that access data without a block device of the kernel.
_DIRECT: Final = ("kvm",)
_USERSPACE: Final = "userspace"


def check(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    node: str,
) -> None:
    """Refuse new disks that a node, or the hypervisor, cannot use; changes nothing.

    Args:
        ctx: dependencies of the opcode.
        instance: their owner.
        disks: the disks.
        node: uuid of the node on which they will be created.

    Raises:
        OpPrereqError: no such provider or parameter, or no such access.
    """
    check_access(ctx.snapshot, instance, disks, node)
    external = [disk for disk in disks if disk.dev_type == "ext"]
    if not external:
        return
    name = ctx.snapshot.nodes[node].name
    rows = ctx.rpc.call_node(node, calls.extstorage_diagnose()).require(
        f"instance {instance.name}: cannot check its external storage",
        ecodes.ECODE_ENVIRON,
    )
    for disk in external:
        _check_provider(disk, rows or (), f"instance {instance.name}", name)


def _check_provider(
    disk: objects.Disk, rows: Sequence[Sequence[Any]], what: str, node: str
) -> None:
    wanted = disk.logical_id[0]
    known = next((row for row in rows if row[0] == wanted), None)
    if known is None:
        names = ", ".join(sorted({str(row[0]) for row in rows})) or "none"
        raise errors.OpPrereqError(
            f"{what}: node {node} has no external storage provider {wanted}, only"
            f" {names}; an administrator of the node can install one",
            ecodes.ECODE_NOENT,
        )
    _name, path, is_valid, message, parameters = known
    if not is_valid:
        raise errors.OpPrereqError(
            f"{what}: external storage provider {wanted} cannot be used on node {node}:"
            f" {path}: {message}",
            ecodes.ECODE_ENVIRON,
        )
    given = set(disk.params or {}) - _GENERAL
    offered = {str(row[0]) for row in parameters or () if row}
    if unknown := sorted(given - offered):
        raise errors.refusal(
            f"{what}: external storage provider {wanted} has no parameter"
            f" {', '.join(unknown)}, only {', '.join(sorted(offered)) or 'none'}"
        )


def check_access(
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    node: str,
) -> None:
    """Refuse access by the emulator if the hypervisor has none.

    Raises:
        OpPrereqError: the hypervisor needs block devices.
    """
    group = snapshot.nodes[node].group
    for disk in disks:
        if disk.dev_type not in constants.DTS_HAVE_ACCESS:
            continue
        inherited = params.fill_diskparams(snapshot, group, disk.dev_type)
        access = {**inherited, **(disk.params or {})}.get("access")
        if access == _USERSPACE and instance.hypervisor not in _DIRECT:
            raise errors.refusal(
                f"instance {instance.name}: disks of template {disk.dev_type} with"
                f" access={_USERSPACE} need hypervisor {' or '.join(_DIRECT)}, found"
                f" {instance.hypervisor}; use access=kernelspace"
            )
