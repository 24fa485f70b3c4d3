"""OP_CLUSTER_REPAIR_DISK_SIZES: correct recorded disk sizes."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.master import locking
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import ALL, LogicalUnit
from ganeti.protocols.rpc import encode

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
        self.locks.names[Level.NODE_RES] = []
        self.locks.shared.add(Level.NODE_RES)

    def declare_locks(self, level: locking.Level) -> None:
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
        answer = self.ctx.rpc.call_one(
            "blockdev_getdimensions",
            uuid,
            [encode.disk(snapshot, disk, instance) for instance, _, disk in disks],
        )
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
        changes = {
            name: value
            for name, value in real.items()
            if value is not None and value != getattr(disk, name)
        }
        if not changes:
            return []
        for name, value in changes.items():
            self.ctx.log.info(
                f"Disk {index} of instance {instance.name} has mismatched {name},"
                f" correcting: recorded {getattr(disk, name)}, actual {value}"
            )
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update(edit.snapshot.disks[disk.uuid].replace(**changes))
        return [(instance.name, index, name, value) for name, value in changes.items()]
