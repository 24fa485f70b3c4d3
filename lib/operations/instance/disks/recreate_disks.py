"""OP_INSTANCE_RECREATE_DISKS: create lost disks again, without data."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import params as param_types
from ganeti.base.text import messages
from ganeti.master import iallocator, locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import allocation, base
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.disks import (
    disk_specs,
    mirror_records,
    node_disks,
    volumes,
)
from ganeti.operations.parameters import typed_params
from ganeti.protocols.rpc import calls, encode


class Interrupted(msgspec.Struct, frozen=True):
    """The state of an opcode whose master daemon ended while it made disks.

    Attributes:
        new_nodes: uuids of the nodes to which the disks move; empty if they stay.
        disks: the future records.
        position: of the disk in ``node_disks`` that was being wiped.
        offset_mib: the part of it that is wiped.
        is_creating: whether the disks were being created; none is wiped.
    """

    new_nodes: list[str]
    disks: list[dict[str, Any]]
    position: int
    offset_mib: int
    is_creating: bool = False


class InstanceRecreateDisks(common.InstanceUnit[opcodes.InstanceRecreateDisks]):
    """Unit that creates some or all disks again, on the same node or on another one."""

    NEEDS_EXISTING: ClassVar[str] = "no disks were lost"
    HOOKS_PATH: ClassVar[str | None] = "instance-recreate-disks"
    LOCK_NODES: ClassVar[bool] = True

    def check_arguments(self) -> None:
        """Parse the requested disks."""
        self.requested: dict[int, Mapping[str, Any]] = {}
        for item in self.op.disks:
            index, changes = (item, {}) if isinstance(item, int) else item
            if index in self.requested:
                raise self.prereq(f"disk {index} is given twice")
            self.requested[index] = typed_params.typed(
                changes, param_types.IDISK, f"disk {index}"
            )
            unknown = sorted(set(self.requested[index]) - {"size", "mode", "spindles"})
            if unknown:
                raise self.prereq(
                    f"disk {index}: {', '.join(unknown)} cannot change here, only size,"
                    " mode and spindles"
                )
        if self.op.nodes and self.op.iallocator:
            raise self.prereq(
                f"instance {self.op.instance_name}: give either an allocator or nodes"
            )

    def expand_names(self) -> None:
        """Look the new nodes up, or lock all if the allocator chooses."""
        super().expand_names()
        snapshot = self.ctx.snapshot
        if self.ctx.resumption is not None:
            self.left = msgspec.convert(self.ctx.resumption, Interrupted)
            self.new_nodes = self.left.new_nodes
            return
        self.new_nodes = [lookup.expand_node(snapshot, n) for n in self.op.nodes]
        if self.op.iallocator:
            self.allocators = allocation.names(
                snapshot,
                self.op.iallocator,
                f"instance {self.instance.name}",
                iallocator.Allocate.type,
            )

    def declare_locks(self, level: locking.Level) -> None:
        """Declare all nodes if the allocator chooses, else the affected ones."""
        if self.ctx.resumption is not None:
            super().declare_locks(level)
            # Shared as `node_disks.wipe` held them when it was interrupted.
            if level is locking.Level.NODE and not self.left.is_creating:
                self.locks.shared.add(level)
        elif self.op.iallocator:
            allocation.lock_all_nodes(self.locks)
        else:
            super().declare_locks(level)

    def nodes_to_lock(self) -> Sequence[str]:
        """Return old and new nodes."""
        return sorted({*super().nodes_to_lock(), *self.new_nodes})

    def check_prereq(self) -> None:
        """Check state, indexes and nodes."""
        instance, snapshot = self.instance, self.ctx.snapshot
        template = snapshot.disk_template(instance)
        if not instance.disks:
            raise self.prereq(f"instance {instance.name}: has no disks")
        disk_specs.check_template(snapshot, template, instance.name)
        for index in self.requested:
            if not 0 <= index < len(instance.disks):
                raise self.prereq(
                    f"instance {instance.name}: has no disk {index}, it has"
                    f" {messages.places(len(instance.disks))}",
                    ecodes.ECODE_NOENT,
                )
        for node in {instance.primary_node, *self.new_nodes}:
            if not params.has_exclusive_storage(snapshot, node):
                self._refuse_spindles()
        moves = bool(self.new_nodes or self.op.iallocator)
        # A node that is marked offline cannot be asked whether the guest runs there.
        if not (moves and self.primary.offline):
            self.require_online_primary()
            self.require_stopped("have its disks recreated")
        else:
            self.require_nowhere_else("have its disks recreated")
        if moves:
            self._check_move(template)
        self.chosen = self._chosen()
        self._require_lost()
        self.changed = list(self.chosen.values())
        owner = self._owner()
        nodes = {n for disk in self.changed for n in node_disks.nodes_of(disk, owner)}
        volumes.require_space(self.ctx, sorted(nodes), self.changed, instance.name)
        for kind in sorted({disk.dev_type for disk in self.changed}):
            size_mib = sum(disk.size for disk in self.changed if disk.dev_type == kind)
            capacity.require_space(
                self.ctx, owner.primary_node, instance.name, kind, size_mib
            )

    def _refuse_spindles(self) -> None:
        for index, changes in self.requested.items():
            if changes.get("spindles") is not None:
                raise self.prereq(
                    f"disk {index}: spindles can only be given with exclusive storage"
                )

    def _check_move(self, template: str) -> None:
        instance, snapshot = self.instance, self.ctx.snapshot
        if self.requested and len(self.requested) < len(instance.disks):
            raise self.prereq(
                f"instance {instance.name}: a move to another node recreates all"
                " disks, name all of them or none"
            )
        if self.op.iallocator:
            self.new_nodes = self._choose_nodes(template)
        count = 2 if template in disk_constants.DTS_INT_MIRROR else 1
        if len(self.new_nodes) != count:
            where = "two nodes" if count > 1 else "one node"
            raise self.prereq(
                f"instance {instance.name}: template {template} is on {where},"
                f" found {len(self.new_nodes)} new nodes"
            )
        mirror_records.check_nodes(snapshot, template, self.new_nodes, instance.name)
        for node in self.new_nodes:
            checks.node_takes_instances(snapshot, node, instance.name)

    def _choose_nodes(self, template: str) -> list[str]:
        """Have the allocator choose nodes in the group; release other locks."""
        instance, snapshot = self.instance, self.ctx.snapshot
        wanted_disks = [
            disk.replace(**self.requested.get(index, {}))
            for index, disk in enumerate(snapshot.instance_disks(instance))
        ]
        backend = params.fill_beparams(snapshot, instance)
        request = iallocator.Allocate(
            name=instance.name,
            disk_template=template,
            tags=sorted(instance.tags),
            os=instance.os,
            vcpus=backend["vcpus"],
            memory=backend["maxmem"],
            spindle_use=backend["spindle_use"],
            disks=[{"size": disk.size, "mode": disk.mode} for disk in wanted_disks],
            nics=[{"mac": nic.mac, "ip": nic.ip} for nic in instance.nics],
            hypervisor=instance.hypervisor,
            group_name=snapshot.nodegroups[self.primary.group].name,
        )
        what = f"instance {instance.name}"
        names = allocation.ask(
            self.ctx,
            self.allocators,
            request,
            what,
            replaced=instance.uuid,
            explain=bool(self.op.dry_run),
        )
        chosen = [lookup.expand_node(snapshot, name) for name in names]
        allocation.keep_only(self.ctx, sorted({*self.nodes_to_lock(), *chosen}))
        return chosen

    def _require_lost(self) -> None:
        """Refuse if a disk to create exists, because its data would be lost."""
        owner = self._owner()
        kept: list[str] = []
        lost: list[int] = []
        for index, disk in self.chosen.items():
            present = [
                n for n in node_disks.nodes_of(disk, owner) if self._has(n, disk)
            ]
            names = [self.ctx.node_name(node) for node in present]
            if present:
                place = "/".join(
                    part.logical_id[-1] for part in mirror_records.parts(disk)
                )
                kept += [
                    f"{node_disks.label(index)} ({place}) on node {name}"
                    for name in names
                ]
            else:
                lost.append(index)
        if not kept:
            return
        named = " ".join(f"--disk {index}" for index in lost)
        others = f"name the lost ones alone ({named}), or " if lost else ""
        raise self.prereq(
            f"instance {owner.name}: only lost disks are recreated, found"
            f" {', '.join(kept)};"
            f" {others}remove or rename the existing ones if their data is not needed",
            ecodes.ECODE_EXISTS,
        )

    def _has(self, node: str, disk: objects.Disk) -> bool:
        """Return whether a node has a volume of a disk."""
        if disk.dev_type == "ext":
            return self._can_attach(node, disk)
        wire = encode.disk(self.ctx.snapshot, disk, self._owner())
        status = self.ctx.rpc.call_node(node, calls.blockdev_find(wire)).require(
            f"instance {self.instance.name}: cannot determine whether {disk.iv_name} is"
            " lost",
            ecodes.ECODE_ENVIRON,
        )
        return status is not None

    def _can_attach(self, node: str, disk: objects.Disk) -> bool:
        """Return whether a volume can be attached, which alone shows that it exists."""
        wire = encode.disk(self.ctx.snapshot, disk, self._owner())
        owner = encode.instance(self.ctx.snapshot, self._owner())
        index = self.instance.disks.index(disk.uuid)
        answer = self.ctx.rpc.call_node(
            node, calls.blockdev_assemble(wire, owner, True, index)
        )
        if answer.failed and not answer.is_answered:
            answer.require(
                f"instance {self.instance.name}: cannot determine whether"
                f" {disk.iv_name} is lost",
                ecodes.ECODE_ENVIRON,
            )
        # A provider refuses to attach a volume that does not exist.
        if answer.failed:
            return False
        undone = self.ctx.rpc.call_node(node, calls.blockdev_shutdown(wire))
        self.ctx.warn_failed(undone, f"cannot detach {disk.iv_name}")
        return True

    def _chosen(self) -> dict[int, objects.Disk]:
        """Return the future disks to create, by index."""
        recorded = self.ctx.snapshot.instance_disks(self.instance)
        return {
            index: self._changed(recorded[index], self.requested.get(index, {}))
            for index in sorted(self.requested) or range(len(recorded))
        }

    def execute(self) -> None:
        """Create the disks and wipe them, then change the records."""
        if self.new_nodes and self.new_nodes != [self.instance.primary_node]:
            self.ctx.log.warn("the volumes on the old node are not removed")
        self._steps(self.changed).create()

    def resume(self) -> None:
        """Create the disks again, or wipe on; then change the records."""
        changed = [objects.from_dict(objects.Disk, disk) for disk in self.left.disks]
        self._steps(changed).resume(self.left)

    def _steps(self, changed: Sequence[objects.Disk]) -> "_Recreation":
        return _Recreation(self.ctx, self.instance, changed, self.new_nodes)

    def _owner(self) -> objects.Instance:
        """Return the instance when it is on its future node."""
        return _at_new_nodes(self.instance, self.new_nodes)

    def _changed(self, disk: objects.Disk, changes: Mapping[str, Any]) -> objects.Disk:
        if mirror_records.is_mirror(disk):
            return self._changed_mirror(disk, changes)
        nodes = tuple(self.new_nodes) if self.new_nodes and disk.nodes else disk.nodes
        return disk.replace(nodes=nodes, **changes)

    def _changed_mirror(
        self, disk: objects.Disk, changes: Mapping[str, Any]
    ) -> objects.Disk:
        """Return a mirror on its new nodes: other minors, the same port and secret."""
        if "size" in changes:
            disk = mirror_records.with_size(disk, changes["size"])
        disk = disk.replace(**changes)
        if not self.new_nodes:
            return disk
        nodes = tuple(self.new_nodes)
        _first, _second, port, _minor, _other, secret = disk.logical_id
        minors = self.ctx.config.reserve_minors(self.ctx.owner, nodes)
        children = tuple(child.replace(nodes=nodes) for child in disk.children)
        return disk.replace(
            logical_id=(*nodes, port, *minors, secret), nodes=nodes, children=children
        )


def _at_new_nodes(
    instance: objects.Instance, new_nodes: Sequence[str]
) -> objects.Instance:
    """Return the instance when it is on its future node."""
    if not new_nodes:
        return instance
    return instance.replace(primary_node=new_nodes[0])


class _Recreation(common.InstanceWork):
    """The steps that create the disks, wipe them and change their records."""

    def __init__(
        self,
        ctx: base.Context,
        instance: objects.Instance,
        changed: Sequence[objects.Disk],
        new_nodes: Sequence[str],
    ) -> None:
        """Make the steps.

        Args:
            ctx: dependencies of the opcode.
            instance: the instance.
            changed: the future records of the disks.
            new_nodes: uuids of the nodes to which they move; empty if they stay.
        """
        super().__init__(ctx, instance)
        self._changed, self._new_nodes = changed, new_nodes

    @property
    def _owner(self) -> objects.Instance:
        return _at_new_nodes(self.instance, self._new_nodes)

    def resume(self, left: Interrupted) -> None:
        """Create the disks again, or wipe on; then change the records."""
        changed, instance = self._changed, self.instance
        if not {disk.uuid for disk in changed} <= set(instance.disks):
            raise errors.OpExecError(
                f"instance {instance.name}: a disk was removed while it was being"
                " recreated"
            )
        # Disks that stay have recorded identifiers, which nobody else takes.
        if left.new_nodes:
            for disk in changed:
                mirror_records.reserve_again(self.ctx, disk)
        if left.is_creating:
            self._create_again()
            return
        self.ctx.log.message(
            f"* the master daemon was restarted; {node_disks.label(left.position)} of"
            f" the new ones is wiped on from {left.offset_mib} MiB"
        )
        node_disks.wipe_new(
            self.ctx,
            self._owner,
            changed,
            first=left.position,
            offset_mib=left.offset_mib,
            save=self._save,
        )
        self._record()

    def create(self) -> None:
        """Create the disks and wipe them, then change the records."""
        # Stored first: disks that keep their nodes have records, so no note names them,
        # and `_create_again` alone removes what exists after a crash.
        self._save(0, 0, is_creating=True)
        node_disks.create_on_nodes_and_wipe(
            self.ctx, self._owner, self._changed, save=self._save
        )
        self._record()

    def _create_again(self) -> None:
        """Remove what was created of the lost disks, and create them.

        Raises:
            OpExecError: a node refused.
        """
        self.ctx.log.message(
            "* the master daemon was restarted; the disks are created again"
        )
        owner = self._owner
        # They may be active for a wipe that had not begun.
        node_disks.shutdown(self.ctx, owner, disks=self._changed, mark=False)
        if not node_disks.remove_all(self.ctx, owner, self._changed):
            raise errors.OpExecError(
                f"instance {self.instance.name}: the master daemon was restarted while"
                " its disks were being created, and those that exist cannot be"
                " removed; they have no data: remove them on their nodes, and run"
                f" gnt-instance recreate-disks {self.instance.name} again"
            )
        self.create()

    def _save(
        self, position: int, offset_mib: int, *, is_creating: bool = False
    ) -> None:
        records = [objects.to_dict(disk) for disk in self._changed]
        state = Interrupted(
            list(self._new_nodes), records, position, offset_mib, is_creating
        )
        self.ctx.save_resumption(msgspec.to_builtins(state))

    def _record(self) -> None:
        with self.ctx.config.edit(self.ctx.owner) as edit:
            for disk in self._changed:
                # Any update adds 1 to the serial number, one without a change as well.
                if disk != edit.snapshot.disks[disk.uuid]:
                    edit.update(disk)
            if self._new_nodes:
                edit.set_primary_node(self._uuid, self._new_nodes[0])
