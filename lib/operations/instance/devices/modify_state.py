"""The state of OP_INSTANCE_SET_PARAMS that a restarted master daemon continues from.

It is stored before the first act on a node, so that an interrupted change of devices is
either completed or undone. One commit records the whole change: if the records have it,
the rest is done, else everything is undone.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti.model import objects
from ganeti.operations.instance.devices.modify_nics import NicStep
from ganeti.operations.instance.disks import convert_mirror

#: Fields that a change of an instance or of its existing disks may concern, besides the
#: devices. Private parameters are not in stored states, not even in a digest.
_FIELDS: Final = (
    *("hvparams", "beparams", "os", "osparams", "admin_state", "admin_state_source"),
    "primary_node",
)
_DISK_FIELDS: Final = ("uuid", "mode", "name", "params")


class SavedStep(msgspec.Struct, frozen=True):
    """A `NicStep` without its report, as JSON types."""

    action: str
    index: int
    disk: objects.Disk | None = None
    nic: objects.Nic | None = None

    def step(self) -> NicStep:
        """Return the step."""
        return NicStep(self.action, self.index, self.disk or self.nic, ())


class Interrupted(msgspec.Struct, frozen=True, kw_only=True):
    """A change of devices.

    Attributes:
        disks: uuids of the disks after the change, in order.
        nics: the NICs after the change.
        before: the NICs before it.
        disk_steps, nic_steps: the changes.
        is_live: whether the running guest gets them, too.
        report: the result of the opcode without the rows of the guest's devices.
        conversion: of the disks, begun after the devices were changed.
        digest: of the other values after the change; empty if the devices themselves
            differ from those before it.
        serial_no: the least one of the record of the instance after the change.
    """

    disks: tuple[str, ...]
    nics: tuple[objects.Nic, ...]
    before: tuple[objects.Nic, ...]
    disk_steps: tuple[SavedStep, ...]
    nic_steps: tuple[SavedStep, ...]
    is_live: bool
    report: tuple[tuple[str, Any], ...]
    conversion: convert_mirror.Work | None = None
    digest: str = ""
    serial_no: int = 0

    def is_recorded(
        self, instance: objects.Instance, disks: Sequence[objects.Disk]
    ) -> bool:
        """Return whether the records of the instance and its disks have the change."""
        return (
            (instance.disks, instance.nics) == (self.disks, self.nics)
            and self.digest in ("", digest(instance, disks))
            and instance.serial_no >= self.serial_no
        )


def digest(instance: objects.Instance, disks: Sequence[objects.Disk]) -> str:
    """Return a digest of the values that a change may concern besides the devices."""
    values = (
        [getattr(instance, name) for name in _FIELDS],
        [[getattr(disk, name) for name in _DISK_FIELDS] for disk in disks],
    )
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()


def evidence(
    before: objects.Instance, after: objects.Instance, disks: Sequence[objects.Disk]
) -> tuple[str, int]:
    """Return the digest and the serial number by which a change is found recorded.

    Args:
        before: the record of the instance before the change.
        after: the record after it, with its disks and its primary node.
        disks: the records of the disks after the change, in order.
    """
    if (before.disks, before.nics) != (after.disks, after.nics):
        return "", 0
    is_private = before.osparams_private != after.osparams_private
    return digest(after, disks), before.serial_no + is_private


def saved(
    disk_steps: Sequence[NicStep], nic_steps: Sequence[NicStep]
) -> tuple[tuple[SavedStep, ...], tuple[SavedStep, ...]]:
    """Return the steps of disks and those of NICs in the form to be stored."""
    return (
        tuple(SavedStep(s.action, s.index, disk=s.device) for s in disk_steps),
        tuple(SavedStep(s.action, s.index, nic=s.device) for s in nic_steps),
    )
