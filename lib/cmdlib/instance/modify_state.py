"""The state of OP_INSTANCE_SET_PARAMS that a restarted master daemon continues from.

It is stored before the first act on a node, so that an interrupted change of devices is
either completed or undone. One commit records the whole change: if the record of the
instance has the wanted devices, the rest is done, else everything is undone.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ganeti import objects
from ganeti.cmdlib.instance import convert_mirror
from ganeti.cmdlib.instance.modify_nics import NicStep


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
    """

    disks: tuple[str, ...]
    nics: tuple[objects.Nic, ...]
    before: tuple[objects.Nic, ...]
    disk_steps: tuple[SavedStep, ...]
    nic_steps: tuple[SavedStep, ...]
    is_live: bool
    report: tuple[tuple[str, Any], ...]
    conversion: convert_mirror.Work | None = None

    def is_recorded(self, instance: objects.Instance) -> bool:
        """Return whether the record of the instance has the devices."""
        return (instance.disks, instance.nics) == (self.disks, self.nics)


def saved(
    disk_steps: Sequence[NicStep], nic_steps: Sequence[NicStep]
) -> tuple[tuple[SavedStep, ...], tuple[SavedStep, ...]]:
    """Return the steps of disks and those of NICs in the form to be stored."""
    return (
        tuple(SavedStep(s.action, s.index, disk=s.device) for s in disk_steps),
        tuple(SavedStep(s.action, s.index, nic=s.device) for s in nic_steps),
    )
