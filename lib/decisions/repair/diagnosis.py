"""Diagnosis of instances on drained or offline nodes, and the opcodes of repairs."""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ganeti.decisions.repair.tags import RepairKind
from ganeti.model.objects.allocators import IALLOCATOR_MODE_ALLOC as _ALLOCATE
from ganeti.model.objects.allocators import IALLOCATOR_MODE_RELOC as _RELOCATE

#: Disk templates whose data every node of the group can access.
_SHARED: Final = frozenset({"sharedfile", "gluster", "rbd", "ext", "blockdev"})
#: Disk templates whose data is on one node only.
_SINGLE: Final = frozenset({"plain", "file"})
#: Seconds to wait until a guest has shut down.
_SHUTDOWN_S: Final = 120

#: Types of requests to allocators that repairs cause.
REQUEST_TYPES: Final = (_ALLOCATE, _RELOCATE)

Op = dict[str, Any]
_KINDS: Final = {
    "OP_INSTANCE_FAILOVER": RepairKind.FAILOVER,
    "OP_INSTANCE_MIGRATE": RepairKind.MIGRATE,
    "OP_INSTANCE_RECREATE_DISKS": RepairKind.REINSTALL,
    "OP_INSTANCE_REINSTALL": RepairKind.REINSTALL,
    "OP_INSTANCE_REPLACE_DISKS": RepairKind.FIX_STORAGE,
}
_START: Final = "OP_INSTANCE_STARTUP"
#: Opcodes that move, repair or start an instance.
OP_IDS: Final = (*_KINDS, _START)


class NodeHealth(enum.Enum):
    """Health of a node, from its flags."""

    GOOD = enum.auto()
    DRAINED = enum.auto()
    OFFLINE = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceHealth:
    """An instance and the health of its nodes.

    Attributes:
        name: name of the instance.
        template: disk template.
        primary: health of the primary node.
        secondary: health of the secondary node; None without one.
        up: the instance should run (its admin state).
        always_failover: it may not be migrated while it runs (backend parameter).
    """

    name: str
    template: str
    primary: NodeHealth
    secondary: NodeHealth | None = None
    up: bool = False
    always_failover: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Repair:
    """A required repair.

    Attributes:
        kind: how severe it is.
        ops: opcodes in wire form.
        reason: text for the administrator.
        loses_files: whether it replaces file disks; this needs its own permission.
        whole: most severe kind that completing the repair is going to require.
        is_start: it only starts the instance, which is where it should be.
    """

    kind: RepairKind
    ops: tuple[Op, ...]
    reason: str
    loses_files: bool = False
    whole: RepairKind = RepairKind.FIX_STORAGE
    is_start: bool = False


def find_repair(
    instance: InstanceHealth, allocators: Mapping[str, str]
) -> Repair | None:
    """Return the next repair of an instance.

    None if its nodes are healthy, or if its disk template allows no repair.

    Args:
        instance: the instance.
        allocators: type of request, of `REQUEST_TYPES` -> name of the allocator.
    """
    if instance.template == "drbd":
        return _mirrored(instance, allocators)
    if instance.primary == NodeHealth.GOOD:
        return None
    if instance.template in _SHARED:
        return _moved(instance, {"iallocator": allocators[_RELOCATE]})
    if instance.template in _SINGLE and instance.primary == NodeHealth.OFFLINE:
        return _recreated(instance, allocators, "its node is offline")
    return None


def obstacle(instance: InstanceHealth) -> str:
    """Return why an instance that `find_repair` has no repair for needs one, or ""."""
    nodes = {instance.primary, instance.secondary}
    if nodes <= {NodeHealth.GOOD, None}:
        return ""
    return (
        "its node is drained or offline, and nothing can be done for an instance of"
        f" template {instance.template}"
    )


def _mirrored(instance: InstanceHealth, allocators: Mapping[str, str]) -> Repair | None:
    both = {instance.primary, instance.secondary}
    if both == {NodeHealth.OFFLINE}:
        return _recreated(instance, allocators, "both its nodes are offline")
    if instance.primary != NodeHealth.GOOD and instance.secondary == NodeHealth.GOOD:
        return _moved(instance, {})
    if (
        instance.primary == NodeHealth.OFFLINE
        and instance.secondary == NodeHealth.DRAINED
    ):
        # The drained node has the only copy that can be reached.
        return _moved(instance, {})
    if instance.secondary not in {NodeHealth.GOOD, None}:
        op: Op = {
            "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
            "instance_name": instance.name,
            "mode": "replace_new_secondary",
            "disks": [],
            "iallocator": allocators[_RELOCATE],
        }
        reason = "its secondary node is drained or offline"
        is_first = instance.primary != NodeHealth.GOOD
        whole = _moved(instance, {}).kind if is_first else RepairKind.FIX_STORAGE
        return Repair(RepairKind.FIX_STORAGE, (op,), reason, whole=whole)
    return None


def _moved(instance: InstanceHealth, more: Op) -> Repair:
    name = {"instance_name": instance.name}
    is_drained = instance.primary == NodeHealth.DRAINED
    reason = f"its primary node is {'drained' if is_drained else 'offline'}"
    if is_drained and not (instance.up and instance.always_failover):
        op: Op = {"OP_ID": "OP_INSTANCE_MIGRATE", **name}
        if not instance.up:
            # A stopped instance has no running state that a failover could lose.
            op["allow_failover"] = True
        return Repair(RepairKind.MIGRATE, (op | more,), reason)
    if is_drained:
        reason += ", and the instance is never migrated"
    op = {
        "OP_ID": "OP_INSTANCE_FAILOVER",
        **name,
        "shutdown_timeout": _SHUTDOWN_S,
        "ignore_consistency": False,
    }
    return Repair(RepairKind.FAILOVER, (op | more,), reason)


def _recreated(
    instance: InstanceHealth, allocators: Mapping[str, str], reason: str
) -> Repair:
    name = {"instance_name": instance.name}
    disks: Op = {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", **name, "disks": []}
    ops = [disks | {"iallocator": allocators[_ALLOCATE]}]
    if instance.up:
        # Reinstallation requires a stopped instance. This one has not run since its
        # node failed, but the configuration still states that it is up.
        ops.append({"OP_ID": "OP_INSTANCE_SHUTDOWN", **name})
    ops.append({"OP_ID": "OP_INSTANCE_REINSTALL", **name})
    if instance.up:
        ops.append({"OP_ID": "OP_INSTANCE_STARTUP", **name})
    loses_files = instance.template == "file"
    return Repair(RepairKind.REINSTALL, tuple(ops), reason, loses_files)


def start(name: str) -> Repair:
    """Return the repair of an instance whose repair was not completed: its start."""
    op: Op = {"OP_ID": _START, "instance_name": name}
    reason = "a job of its repair failed, and it does not run"
    return Repair(RepairKind.FIX_STORAGE, (op,), reason, is_start=True)


def kind_of(op_ids: Iterable[str]) -> RepairKind | None:
    """Return the most severe kind of opcodes; None if none of them repairs."""
    kinds = [_KINDS[op_id] for op_id in op_ids if op_id in _KINDS]
    return max(kinds, default=None)
