"""OP_NODE_MODIFY_STORAGE and OP_REPAIR_NODE_STORAGE: change and repair of units."""

from collections.abc import Sequence
from typing import Any

from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes, storage
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit
from ganeti.protocols.rpc import encode


class NodeModifyStorage(LogicalUnit[opcodes.NodeModifyStorage]):
    """Unit that changes fields of a storage unit."""

    def check_arguments(self) -> None:
        """Check that the type has such fields."""
        op = self.op
        allowed = storage.MODIFIABLE_STORAGE_FIELDS.get(op.storage_type)
        if allowed is None:
            raise self.prereq(
                f"storage units of type {op.storage_type} cannot be modified, only"
                f" those of {', '.join(storage.MODIFIABLE_STORAGE_FIELDS)}"
            )
        if unknown := sorted(set(op.changes) - set(allowed)):
            raise self.prereq(
                f"storage type {op.storage_type}: {', '.join(unknown)} cannot be"
                f" modified, only {', '.join(allowed)}"
            )
        if not op.changes:
            raise self.prereq("no changes requested")
        if not op.name:
            raise self.prereq(f"storage type {op.storage_type}: no unit named")

    def expand_names(self) -> None:
        """Lock the node."""
        self.node = lookup.expand_node(self.ctx.snapshot, self.op.node_name)
        self.locks.names[Level.NODE] = [self.node]

    def execute(self) -> None:
        """Have the node change the unit."""
        op = self.op
        self.ctx.rpc.call_one(
            "storage_modify", self.node, op.storage_type, [], op.name, op.changes
        ).unwrap(f"cannot modify storage unit {op.name}")


class RepairNodeStorage(LogicalUnit[opcodes.RepairNodeStorage]):
    """Unit that takes what is missing out of a storage unit.

    The data on it is lost there. So before, the other nodes of each instance must have
    theirs.
    """

    def check_arguments(self) -> None:
        """Check that the type can be repaired."""
        op = self.op
        offered = storage.VALID_STORAGE_OPERATIONS.get(op.storage_type, ())
        if storage.SO_FIX_CONSISTENCY not in offered:
            raise self.prereq(
                f"storage units of type {op.storage_type} cannot be repaired, only"
                f" those of {', '.join(storage.VALID_STORAGE_OPERATIONS)}"
            )
        if not op.name:
            raise self.prereq(f"storage type {op.storage_type}: no unit named")

    def expand_names(self) -> None:
        """Lock the node."""
        self.node = lookup.expand_node(self.ctx.snapshot, self.op.node_name)
        self.locks.names[Level.NODE] = [self.node]

    def check_prereq(self) -> None:
        """Refuse while another node of an instance has a faulty disk."""
        snapshot = self.ctx.snapshot
        users = snapshot.primary_instances(self.node) | snapshot.secondary_instances(
            self.node
        )
        for uuid in sorted(users):
            instance = snapshot.instances[uuid]
            if instance.disks_active:
                self._check_others(instance)

    def _check_others(self, instance: objects.Instance) -> None:
        snapshot = self.ctx.snapshot
        disks = snapshot.instance_disks(instance)
        others = {
            node for disk in disks for node in (*disk.nodes, instance.primary_node)
        }
        for node in sorted(others - {self.node}):
            problem = self._faulty(instance, node, disks)
            if not problem:
                continue
            text = (
                f"instance {instance.name}: {problem}; a repair on"
                f" {snapshot.nodes[self.node].name} could lose its last good copy"
            )
            if not self.op.ignore_consistency:
                raise self.prereq(text, ecodes.ECODE_STATE)
            self.ctx.log.warn(text)

    def _faulty(
        self, instance: objects.Instance, node: str, disks: Sequence[objects.Disk]
    ) -> str:
        """Return why a node's disks of an instance cannot be relied on, or nothing."""
        snapshot = self.ctx.snapshot
        name = snapshot.nodes[node].name
        wires = [encode.disk(snapshot, disk, instance) for disk in disks]
        answer = self.ctx.rpc.call_one("blockdev_getmirrorstatus_multi", node, wires)
        if answer.failed:
            return answer.describe(f"the disks on node {name} cannot be examined")
        for disk, (is_fine, status) in zip(disks, answer.payload, strict=True):
            if not is_fine:
                return f"{disk.iv_name} on node {name}: {status}"
            level = _local_status(status)
            if level == disk_constants.LDS_FAULTY:
                return f"{disk.iv_name} on node {name} is faulty"
            if status is None or level not in (None, disk_constants.LDS_OK):
                # Being synchronised, inactive, or without volumes.
                return f"{disk.iv_name} on node {name} is no complete copy"
        return ""

    def execute(self) -> None:
        """Have the node repair the unit."""
        op = self.op
        name = self.ctx.snapshot.nodes[self.node].name
        self.ctx.log.message(f"Repairing storage unit '{op.name}' on {name} ...")
        self.ctx.rpc.call_one(
            "storage_execute",
            self.node,
            op.storage_type,
            [],
            op.name,
            storage.SO_FIX_CONSISTENCY,
        ).unwrap(f"cannot repair storage unit {op.name}")


def _local_status(status: Any) -> int | None:
    value = status.get("ldisk_status") if isinstance(status, dict) else None
    return value if isinstance(value, int) else None
