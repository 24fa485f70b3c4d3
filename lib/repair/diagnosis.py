"""Diagnosis of an instance whose nodes fail, and the opcodes that repair it."""

import dataclasses
import enum
from typing import Any, Final

from ganeti.repair.tags import RepairKind

#: Templates whose disks every node of the group can access.
_SHARED: Final = frozenset({"sharedfile", "gluster", "rbd", "ext", "blockdev"})
#: Templates whose data is only on one node.
_SINGLE: Final = frozenset({"plain", "file"})
#: Seconds that a guest has to shut down.
_SHUTDOWN_S: Final = 120

Op = dict[str, Any]


class NodeHealth(enum.Enum):
    """The condition of a node."""

    GOOD = enum.auto()
    DRAINED = enum.auto()
    OFFLINE = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """An instance: its disks and the health of its nodes; None without a secondary.

    ``up``: whether its owner wants it to run.
    """

    name: str
    template: str
    primary: NodeHealth
    secondary: NodeHealth | None = None
    up: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Repair:
    """A required repair: its kind, opcodes in wire form, and the reason as text."""

    kind: RepairKind
    ops: tuple[Op, ...]
    why: str


def find(subject: Subject, allocator: str) -> Repair | None:
    """Find the next repair of an instance; None if it needs none or has none.

    Args:
        subject: the instance.
        allocator: chooses new nodes.
    """
    if subject.template == "drbd":
        return _mirrored(subject, allocator)
    if subject.primary == NodeHealth.GOOD:
        return None
    if subject.template in _SHARED:
        return _moved(subject, {"iallocator": allocator})
    if subject.template in _SINGLE and subject.primary == NodeHealth.OFFLINE:
        return _recreated(subject, allocator, "its node is offline")
    return None


def _mirrored(subject: Subject, allocator: str) -> Repair | None:
    both = {subject.primary, subject.secondary}
    if both == {NodeHealth.OFFLINE}:
        return _recreated(subject, allocator, "both its nodes are offline")
    if subject.primary != NodeHealth.GOOD and subject.secondary == NodeHealth.GOOD:
        return _moved(subject, {})
    if (
        subject.primary == NodeHealth.OFFLINE
        and subject.secondary == NodeHealth.DRAINED
    ):
        return _moved(subject, {})
    if subject.secondary not in {NodeHealth.GOOD, None}:
        op: Op = {
            "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
            "instance_name": subject.name,
            "mode": "replace_new_secondary",
            "disks": [],
            "iallocator": allocator,
        }
        return Repair(RepairKind.FIX_STORAGE, (op,), "its secondary node fails")
    return None


def _moved(subject: Subject, more: Op) -> Repair:
    if subject.primary == NodeHealth.DRAINED:
        live = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": subject.name}
        return Repair(RepairKind.MIGRATE, (live | more,), "its primary node is drained")
    op: Op = {
        "OP_ID": "OP_INSTANCE_FAILOVER",
        "instance_name": subject.name,
        "shutdown_timeout": _SHUTDOWN_S,
        "ignore_consistency": False,
    }
    return Repair(RepairKind.FAILOVER, (op | more,), "its primary node is offline")


def _recreated(subject: Subject, allocator: str, why: str) -> Repair:
    name = {"instance_name": subject.name}
    disks: Op = {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", **name, "disks": []}
    ops = [disks | {"iallocator": allocator}]
    if subject.up:
        # Only a stopped instance can be installed; this one has not run since its node
        # failed.
        ops.append({"OP_ID": "OP_INSTANCE_SHUTDOWN", **name})
    ops.append({"OP_ID": "OP_INSTANCE_REINSTALL", **name})
    if subject.up:
        ops.append({"OP_ID": "OP_INSTANCE_STARTUP", **name})
    return Repair(RepairKind.REINSTALL, tuple(ops), why)
