"""Disks of instances: activated, deactivated, and measured for their records."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from ganeti.base import errors
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import ALL, LogicalUnit
from ganeti.operations.instance import common
from ganeti.operations.instance.disks import (
    mirror_records,
    mirror_states,
    node_disks,
)
from ganeti.operations.instance.run import elsewhere
from ganeti.protocols.rpc import calls, encode


class InstanceActivateDisks(common.InstanceUnit[opcodes.InstanceActivateDisks]):
    """Unit that assembles the disks, and may wait for their synchronisation."""

    NEEDS_EXISTING: ClassVar[str] = "it has no disks on nodes that could be activated"
    HOOKS_TYPE: ClassVar[str | None] = None
    LOCK_NODES: ClassVar[bool] = True

    def check_prereq(self) -> None:
        """Refuse if the primary node is offline or outdated, or another one runs it."""
        self.require_online_primary()
        self.require_nowhere_else("have its disks activated", must_answer=False)
        mirror_states.require_right_side(self.ctx, self.instance)

    def execute(self) -> list[tuple[str, str, str | None]]:
        """Assemble the disks; return (node, disk, device path) rows."""
        rows = node_disks.assemble(
            self.ctx,
            self.instance,
            ignore_size=self.op.ignore_size,
            # The guest goes on; and the watcher tries again.
            stays_active=self.instance.disks_active,
        )
        if self.op.wait_for_sync:
            degraded = mirror_states.wait_for_sync(self.ctx, self.instance)
            if degraded:
                raise mirror_states.degraded_error(self.instance, degraded)
        return rows


class InstanceDeactivateDisks(common.InstanceUnit[opcodes.InstanceDeactivateDisks]):
    """Unit that shuts disks down; refuses while the guest uses them, unless forced."""

    NEEDS_EXISTING: ClassVar[str] = "it has no disks on nodes that could be deactivated"
    HOOKS_TYPE: ClassVar[str | None] = None
    LOCK_NODES: ClassVar[bool] = True

    def check_prereq(self) -> None:
        """Refuse if the instance runs on any node, unless forced."""
        if self.op.force:
            elsewhere.warn(self.ctx, self.instance, "may lose its disks there")
            return
        self.require_online_primary()
        if self.runtime_info():
            raise self.prereq(
                f"instance {self.instance.name}: is running, its disks are in use",
                "wrong_state",
            )
        self.require_nowhere_else("have its disks deactivated", must_answer=False)

    def execute(self) -> None:
        """Shut the disks down."""
        if not node_disks.shutdown(
            self.ctx, self.instance, ignore_primary=self.op.force
        ):
            raise errors.OpExecError(
                f"instance {self.instance.name}: not all disks could be shut down"
            )


_MIB: Final = 1024 * 1024


class ClusterRepairDiskSizes(LogicalUnit[opcodes.ClusterRepairDiskSizes]):
    """Unit that compares recorded with real sizes; the result lists the corrections."""

    def expand_names(self) -> None:
        """Lock the instances, all if none are named."""
        snapshot = self.ctx.snapshot
        if self.op.instances:
            uuids = [lookup.expand_instance(snapshot, n) for n in self.op.instances]
            names = sorted({snapshot.instances[uuid].name for uuid in uuids})
            self.locks.names[Level.INSTANCE] = names
        else:
            self.locks.names[Level.INSTANCE] = ALL
        # The nodes are known when the instances are locked; see `declare_locks`.
        self.locks.names[Level.NODE_RES] = []
        self.locks.shared.add(Level.NODE_RES)

    def declare_locks(self, level: Level) -> None:
        """Lock the resources of the primary nodes."""
        if level is Level.NODE_RES:
            self.locks.names[level] = sorted(
                {item.primary_node for item in self._instances()}
            )

    def _instances(self) -> list[objects.Instance]:
        snapshot = self.ctx.snapshot
        uuids = (
            snapshot.uuid_of("instances", name)
            for name in self.ctx.locks.owned(Level.INSTANCE)
        )
        known = (snapshot.instances[uuid] for uuid in uuids if uuid is not None)
        # Reserved disks are on no node.
        return [instance for instance in known if not instance.forthcoming]

    def execute(self) -> list[tuple[str, int, str, int]]:
        """Ask the nodes one by one and correct sizes that differ."""
        snapshot = self.ctx.snapshot
        by_node: dict[str, list[tuple[objects.Instance, int, objects.Disk]]] = {}
        for instance in sorted(self._instances(), key=lambda item: item.name):
            for index, disk in enumerate(snapshot.instance_disks(instance)):
                by_node.setdefault(instance.primary_node, []).append(
                    (instance, index, disk)
                )
        rows: list[tuple[str, int, str, int]] = []
        for uuid, disks in sorted(by_node.items()):
            for (instance, index, disk), size in self._sizes(uuid, disks):
                if size is None:
                    self.ctx.log.warn(
                        f"Disk {index} of instance {instance.name} did not return size"
                        " information, ignoring"
                    )
                    continue
                rows.extend(self._correct(instance, index, disk, size))
        return rows

    def _sizes(
        self, uuid: str, disks: list[tuple[objects.Instance, int, objects.Disk]]
    ) -> list[tuple[tuple[objects.Instance, int, objects.Disk], Any]]:
        snapshot = self.ctx.snapshot
        answer = self.ctx.rpc.call_node(
            uuid,
            calls.blockdev_getdimensions(
                [encode.disk(snapshot, disk, instance) for instance, _, disk in disks]
            ),
        )
        # Rows belong to disks by their order, so an incomplete answer is useless.
        if answer.failed or len(answer.payload) != len(disks):
            self.ctx.log.warn(
                f"Failure in blockdev_getdimensions call to node {answer.node},"
                f" ignoring: {answer.fail_msg or 'malformed answer'}"
            )
            return []
        return list(zip(disks, answer.payload, strict=True))

    def _correct(
        self,
        instance: objects.Instance,
        index: int,
        disk: objects.Disk,
        measured: Any,
    ) -> list[tuple[str, int, str, int]]:
        size_bytes, spindles = measured
        real: Mapping[str, Any] = {"size": size_bytes // _MIB, "spindles": spindles}
        recorded = {
            "size": min(part.size for part in (disk, *disk.children[:1])),
            "spindles": disk.spindles,
        }
        changes = {
            name: value
            for name, value in real.items()
            # A node reports None for spindles that it does not count.
            if value is not None and value != recorded[name]
        }
        if not changes:
            return []
        for name, value in changes.items():
            self.ctx.log.info(
                f"Disk {index} of instance {instance.name} has mismatched {name},"
                f" correcting: recorded {recorded[name]}, actual {value}"
            )
        with self.ctx.config.edit(self.ctx.owner) as edit:
            corrected = edit.snapshot.disks[disk.uuid].replace(**changes)
            if "size" in changes:
                corrected = mirror_records.with_size(corrected, changes["size"])
            edit.update(corrected)
        return [(instance.name, index, name, value) for name, value in changes.items()]
