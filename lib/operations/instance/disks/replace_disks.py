"""OP_INSTANCE_REPLACE_DISKS: replace disks or the secondary of a mirrored instance.

The unit makes all checks and chooses disks and node; `replace_volumes` and
`replace_secondary` do the work.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.base.text import messages
from ganeti.master import iallocator, locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import allocation
from ganeti.operations.instance import checks, common
from ganeti.operations.instance.disks import (
    replace_secondary,
    replace_volumes,
    replacement_steps,
    volumes,
)
from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.answers import BlockDevice

_NEW_SECONDARY: Final = "replace_new_secondary"
_AUTO: Final = "replace_auto"
_ON_PRIMARY: Final = "replace_on_primary"


class InstanceReplaceDisks(common.InstanceUnit[opcodes.InstanceReplaceDisks]):
    """Unit that determines the disks to replace and their nodes, and replaces them."""

    NEEDS_EXISTING: ClassVar[str] = "it has no disks on nodes that could be replaced"
    HOOKS_PATH: ClassVar[str | None] = "mirrors-replace"
    LOCK_NODES: ClassVar[bool] = True

    #: Indexes of the disks to replace, and the node that gets new volumes.
    indexes: Sequence[int] = ()
    target: str
    #: The secondary node at the beginning.
    old: str
    #: The work of an earlier run whose master daemon ended.
    left: replacement_steps.Work | None = None

    def check_arguments(self) -> None:
        """Check that mode, disks and new node fit together."""
        op, what = self.op, f"instance {self.op.instance_name}"
        choices = [choice for choice in (op.remote_node, op.iallocator) if choice]
        if op.mode == _NEW_SECONDARY and len(choices) != 1:
            raise self.prereq(f"{what}: give either a new secondary or an allocator")
        if op.mode != _NEW_SECONDARY and choices:
            raise self.prereq(
                f"{what}: a new secondary goes with mode {_NEW_SECONDARY}, found"
                f" {op.mode}"
            )
        if op.mode == _AUTO and op.disks:
            raise self.prereq(
                f"{what}: disks cannot be named in mode {_AUTO}, which finds the"
                " faulty ones"
            )
        for index in messages.repeated(op.disks):
            raise self.prereq(f"{what}: disk {index} is given twice")

    def expand_names(self) -> None:
        """Look instance and new secondary up."""
        super().expand_names()
        snapshot = self.ctx.snapshot
        self.remote = (
            lookup.expand_node(snapshot, self.op.remote_node)
            if self.op.remote_node
            else None
        )
        self.old = next(iter(snapshot.secondary_nodes(self.instance)), "")
        if self.ctx.resumption is not None:
            self.left = msgspec.convert(self.ctx.resumption, replacement_steps.Work)
            # The record may name the new secondary node already.
            if self.left.old:
                self.remote, self.old = self.left.target, self.left.old
            return
        if self.op.iallocator:
            what = f"instance {self.instance.name}"
            kind = iallocator.Relocate.type
            allocation.names(snapshot, self.op.iallocator, what, kind)

    def declare_locks(self, level: locking.Level) -> None:
        """Declare all nodes if the allocator chooses, else the affected ones."""
        if self.left is not None:
            # Only the locks that the interrupted work still held.
            if level not in self.left.released:
                super().declare_locks(level)
        elif self.op.iallocator:
            allocation.lock_all_nodes(self.locks)
        else:
            super().declare_locks(level)

    def nodes_to_lock(self) -> Sequence[str]:
        """Return the instance's nodes, the old and the new secondary."""
        more = (node for node in (self.old, self.remote) if node)
        return sorted({*super().nodes_to_lock(), *more})

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the request."""
        new = self.ctx.node_name(self.remote) if self.remote else None
        return super().hooks_env() | {
            "MODE": self.op.mode,
            "NEW_SECONDARY": new,
            "OLD_SECONDARY": self.ctx.node_name(self.old),
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, the primary and the new secondary, for both phases."""
        more = [self.remote] if self.remote else []
        nodes = self.with_master([self.instance.primary_node, *more])
        return nodes, nodes

    @property
    def secondary(self) -> objects.Node:
        """The record of the node that has the second copy."""
        snapshot = self.ctx.snapshot
        return snapshot.nodes[snapshot.secondary_nodes(self.instance)[0]]

    def check_prereq(self) -> None:
        """Check all requirements of a replacement, and log what it does."""
        self._require_mirror()
        self._check_indexes()
        self.require_online_primary()
        # Again with the locks: it may have changed while the job waited.
        self.old = self.secondary.uuid
        if self.op.mode == _NEW_SECONDARY:
            self._find_new_secondary()
        else:
            self._find_disks()
        if self.indexes:
            chosen = [disk for _index, disk in self._chosen()]
            volumes.require_space(self.ctx, [self.target], chosen, self.instance.name)

    def _chosen(self) -> list[tuple[int, objects.Disk]]:
        everything = self.ctx.snapshot.instance_disks(self.instance)
        return [(index, everything[index]) for index in self.indexes]

    def execute(self) -> None:
        """Replace the disks, if there are any to replace."""
        if self.indexes:
            self._replacement(self._work()).run()

    def resume(self) -> None:
        """Continue the replacement."""
        work = msgspec.convert(self.ctx.resumption, replacement_steps.Work)
        recorded = {
            disk.uuid for disk in self.ctx.snapshot.instance_disks(self.instance)
        }
        lost = [disk for disk in work.before if disk["uuid"] not in recorded]
        if lost:
            raise errors.OpExecError(
                f"instance {self.instance.name}: a disk was removed while it was being"
                " replaced"
            )
        self._replacement(work).resume()

    def _replacement(
        self, work: replacement_steps.Work
    ) -> replacement_steps.Replacement:
        kind: type[replacement_steps.Replacement] = (
            replace_secondary.SecondaryReplacement
            if work.old
            else replace_volumes.VolumeReplacement
        )
        return kind(self.ctx, self.instance, work)

    def _work(self) -> replacement_steps.Work:
        """Return the work, with new identifiers."""
        ctx, instance, chosen = self.ctx, self.instance, self._chosen()
        is_move = self.op.mode == _NEW_SECONDARY
        releases_early = self.op.early_release
        if is_move and self.secondary.offline and not releases_early:
            ctx.log.info(
                f"node {self.secondary.name} is marked offline, so its locks are"
                " released early"
            )
            releases_early = True
        made = (
            replace_secondary.new_records(ctx, instance, self.target, chosen)
            if is_move
            else replace_volumes.new_records(ctx, self.target, chosen)
        )
        return replacement_steps.Work(
            target=self.target,
            indexes=list(self.indexes),
            made=[objects.to_dict(disk) for disk in made],
            before=[objects.to_dict(disk) for _index, disk in chosen],
            suffix=f"_replaced-{int(ctx.clock.time())}",
            was_active=instance.disks_active,
            releases_early=releases_early,
            old=self.old if is_move else "",
        )

    # Checks
    def _require_mirror(self) -> None:
        template = self.ctx.snapshot.disk_template(self.instance)
        if template not in disk_constants.DTS_INT_MIRROR:
            mirrored = " or ".join(disk_constants.DTS_INT_MIRROR)
            raise self.prereq(
                f"instance {self.instance.name}: disk template {template} has no second"
                f" copy to replace, only {mirrored} has; 'gnt-instance"
                " recreate-disks' creates lost disks again"
            )

    def _check_indexes(self) -> None:
        count = len(self.instance.disks)
        for index in self.op.disks:
            if index >= count:
                raise self.prereq(
                    f"instance {self.instance.name}: has no disk {index}, it has"
                    f" {messages.places(count)}",
                    ecodes.ECODE_NOENT,
                )
        if self.op.mode == _NEW_SECONDARY and 0 < len(self.op.disks) < count:
            raise self.prereq(
                f"instance {self.instance.name}: a new secondary gets all {count}"
                " disks, name all of them or none"
            )

    def _find_new_secondary(self) -> None:
        instance, snapshot = self.instance, self.ctx.snapshot
        primary, old = self.primary, self.secondary
        new = snapshot.nodes[self.remote or self._choose([primary.uuid, old.uuid])]
        self.remote = self.target = new.uuid
        self.indexes = range(len(instance.disks))
        for taken, role in ((primary, "primary"), (old, "secondary")):
            if new == taken:
                raise self.prereq(
                    f"instance {instance.name}: node {new.name} is already its {role}"
                    " node"
                )
        checks.node_takes_instances(snapshot, new.uuid, instance.name)
        if new.group != primary.group and not self.op.ignore_ipolicy:
            problems = checks.problems_of(snapshot, instance, new.group)
            checks.require_policy(problems, snapshot, new.group, instance.name)
        verb = "would get" if self.op.dry_run else "get"
        self.ctx.log.message(
            f"all disks of instance {instance.name} {verb} their second copy on"
            f" node {new.name}, in place of {old.name}"
        )

    def _choose(self, present: Sequence[str]) -> str:
        """Have the allocator choose; keep the locks of that and the current nodes."""
        chosen = allocation.relocation(
            self.ctx,
            self.instance,
            self.op.iallocator,
            explain=bool(self.op.dry_run),
        )
        allocation.keep_only(self.ctx, [*present, chosen])
        return chosen

    def _find_disks(self) -> None:
        instance, second = self.instance, self.secondary
        if second.offline:
            raise self.prereq(
                f"instance {instance.name}: its secondary node {second.name} is marked"
                " offline",
                ecodes.ECODE_STATE,
            )
        indexes = sorted(self.op.disks) or list(range(len(instance.disks)))
        where = self.primary if self.op.mode == _ON_PRIMARY else second
        if self.op.mode == _AUTO:
            indexes, where = self._faulty()
        self.indexes, self.target = indexes, where.uuid
        named = ", ".join(f"disk/{index}" for index in indexes)
        verb = "would be" if self.op.dry_run else "will be"
        summary = f"{named} {verb} replaced on node {where.name}" if named else "none"
        self.ctx.log.message(f"disks of instance {instance.name} to replace: {summary}")

    def _faulty(self) -> tuple[list[int], objects.Node]:
        """Return the faulty disks and their node."""
        instance = self.instance
        if not instance.disks_active:
            raise self.prereq(
                f"instance {instance.name}: its disks are not active, so faulty disks"
                " cannot be detected; activate them, or name the node",
                ecodes.ECODE_STATE,
            )
        faulty = {node.uuid: self._ask(node) for node in (self.primary, self.secondary)}
        if all(faulty.values()):
            raise self.prereq(
                f"instance {instance.name}: has faulty disks on both nodes"
                f" {self.primary.name} and {self.secondary.name}",
                ecodes.ECODE_STATE,
            )
        where = self.primary if faulty[self.primary.uuid] else self.secondary
        return faulty[where.uuid], where

    def _ask(self, node: objects.Node) -> list[int]:
        """Return the indexes of the disks that are faulty on a node."""
        instance, snapshot = self.instance, self.ctx.snapshot
        disks = snapshot.instance_disks(instance)
        what = f"instance {instance.name}: cannot find its faulty disks"
        wires = [encode.disk(snapshot, disk, instance) for disk in disks]
        rows = self.ctx.rpc.call_node(
            node.uuid, calls.blockdev_getmirrorstatus_multi(wires)
        ).require(what, ecodes.ECODE_ENVIRON)
        faulty = []
        for index, (is_known, status) in enumerate(rows):
            if not is_known:
                raise errors.OpPrereqError(
                    f"{what}: node {node.name}: disk/{index}: {status}",
                    ecodes.ECODE_ENVIRON,
                )
            if (
                isinstance(status, BlockDevice)
                and status.ldisk_status == disk_constants.LDS_FAULTY
            ):
                faulty.append(index)
        return faulty
