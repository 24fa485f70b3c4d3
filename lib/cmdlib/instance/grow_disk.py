"""OP_INSTANCE_GROW_DISK: enlarge a disk."""

from typing import Any, ClassVar, Final

from ganeti import objects, opcodes
from ganeti.cmdlib.instance import checks, common, disks
from ganeti.constants import disks as disk_constants
from ganeti.constants import ecodes
from ganeti.rpc import encode

_MIB: Final = 1024 * 1024


class InstanceGrowDisk(common.InstanceUnit[opcodes.InstanceGrowDisk]):
    """Unit that enlarges one disk on its nodes, then notifies a running guest."""

    HOOKS_PATH: ClassVar[str | None] = "disk-grow"
    LOCK_NODES: ClassVar[bool] = True

    def check_prereq(self) -> None:
        """Check disk, amount, policy and nodes."""
        instance, snapshot, op = self.instance, self.ctx.snapshot, self.op
        self.require_online_primary()
        if op.disk >= len(instance.disks):
            raise self.prereq(
                f"instance {instance.name}: has no disk {op.disk}, it has"
                f" {len(instance.disks)}",
                ecodes.ECODE_NOENT,
            )
        self.disk: objects.Disk = snapshot.disks[instance.disks[op.disk]]
        if self.disk.dev_type not in disk_constants.DTS_GROWABLE:
            raise self.prereq(
                f"instance {instance.name}: disk {op.disk}: template"
                f" {self.disk.dev_type} cannot grow"
            )
        self.target_mib = op.amount if op.absolute else self.disk.size + op.amount
        if self.target_mib < self.disk.size:
            raise self.prereq(
                f"instance {instance.name}: disk {op.disk} is {self.disk.size} MiB,"
                f" shrinking to {self.target_mib} MiB is not supported",
                ecodes.ECODE_STATE,
            )
        self.delta_mib = self.target_mib - self.disk.size
        self._check_policy()
        for node in disks.nodes_of(self.disk, instance):
            wire = encode.disk(snapshot, self.disk, instance)
            self.ctx.rpc.call_one(
                "blockdev_grow", node, wire, self.delta_mib, True, True, False
            ).require(
                f"instance {instance.name}: disk {op.disk} cannot grow",
                ecodes.ECODE_NORES,
            )

    def _check_policy(self) -> None:
        if self.op.ignore_ipolicy:
            return
        instance, snapshot = self.instance, self.ctx.snapshot
        sizes = [
            self.target_mib if disk.uuid == self.disk.uuid else disk.size
            for disk in snapshot.instance_disks(instance)
        ]
        problems = checks.problems_of(
            snapshot, instance, self.primary.group, disk_sizes=sizes
        )
        checks.require_policy(problems, snapshot, self.primary.group, instance.name)

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the growth."""
        return super().hooks_env() | {
            "DISK": self.op.disk,
            "AMOUNT": self.op.amount,
            "ABSOLUTE": self.op.absolute,
        }

    def execute(self) -> None:
        """Grow the disk, record it, wipe the new part, notify the guest."""
        instance, op = self.instance, self.op
        if not self.delta_mib:
            self.ctx.log.info(f"disk {op.disk} already has {self.target_mib} MiB")
            return
        what = f"instance {instance.name}: disk {op.disk} could not grow"
        if not instance.disks_active:
            disks.assemble(self.ctx, instance, disks=[self.disk])
        self.ctx.log.message(
            f"Growing disk {op.disk} of instance '{instance.name}' by"
            f" {self.delta_mib} MiB to {self.target_mib} MiB"
        )
        for node in disks.nodes_of(self.disk, instance):
            wire = encode.disk(self.ctx.snapshot, self.disk, instance)
            self.ctx.rpc.call_one(
                "blockdev_grow", node, wire, self.delta_mib, False, True, False
            ).unwrap(what)
        old_size = self.disk.size
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update(
                edit.snapshot.disks[self.disk.uuid].replace(size=self.target_mib)
            )
        self.disk = self.ctx.snapshot.disks[self.disk.uuid]
        if self.ctx.snapshot.cluster.prealloc_wipe_disks:
            disks.wipe(self.ctx, instance, [(op.disk, self.disk, old_size)])
        self._notify_guest()
        if not instance.disks_active:
            disks.shutdown(self.ctx, instance, disks=[self.disk], mark=False)

    def _notify_guest(self) -> None:
        if not self.instance.disks_active or not self.runtime_info():
            return
        wire = encode.disk(self.ctx.snapshot, self.disk, self.instance)
        result = self.ctx.rpc.call_one(
            "resize_disk",
            self.instance.primary_node,
            self.encode(),
            wire,
            self.target_mib * _MIB,
        )
        common.warn_failed(
            self.ctx,
            result,
            "the running guest uses the old size until it is restarted",
        )
