"""OP_INSTANCE_REPLACE_DISKS: replace disks or the secondary of a mirrored instance.

The unit makes all checks and chooses the node. It refuses the replacement itself.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, NoReturn

from ganeti import errors, locking, objects, opcodes
from ganeti.cmdlib import allocation
from ganeti.cmdlib.instance import checks, common
from ganeti.constants import disks as disk_constants
from ganeti.constants import ecodes
from ganeti.objects import lookup
from ganeti.rpc import encode

_NEW_SECONDARY: Final = "replace_new_secondary"
_AUTO: Final = "replace_auto"
_ON_PRIMARY: Final = "replace_on_primary"
#: Local disk status in which a node's copy is unusable.
_FAULTY: Final = 4


class InstanceReplaceDisks(common.InstanceUnit[opcodes.InstanceReplaceDisks]):
    """Unit that determines the disks to replace and their nodes, then refuses."""

    NEEDS_EXISTING: ClassVar[str] = "it has no disks on nodes that could be replaced"
    HOOKS_PATH: ClassVar[str | None] = "mirrors-replace"
    LOCK_NODES: ClassVar[bool] = True

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
        twice = [index for index in op.disks if op.disks.count(index) > 1]
        if twice:
            raise self.prereq(f"{what}: disk {twice[0]} is given twice")

    def expand_names(self) -> None:
        """Look instance and new secondary up."""
        super().expand_names()
        snapshot = self.ctx.snapshot
        self.remote = (
            lookup.expand_node(snapshot, self.op.remote_node)
            if self.op.remote_node
            else None
        )
        if self.op.iallocator:
            what = f"instance {self.instance.name}"
            allocation.names(snapshot, self.op.iallocator, what)

    def declare_locks(self, level: locking.Level) -> None:
        """Declare all nodes if the allocator chooses, else the affected ones."""
        if self.op.iallocator:
            allocation.lock_all_nodes(self.locks)
        else:
            super().declare_locks(level)

    def nodes_to_lock(self) -> Sequence[str]:
        """Return the instance's nodes and the new secondary."""
        known = super().nodes_to_lock()
        return sorted({*known, self.remote} if self.remote else {*known})

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the request."""
        new = self.ctx.snapshot.nodes[self.remote].name if self.remote else None
        return super().hooks_env() | {
            "MODE": self.op.mode,
            "NEW_SECONDARY": new,
            "OLD_SECONDARY": self.secondary.name,
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
        """Check all requirements of a replacement, and log what it would do."""
        self._require_mirror()
        self._check_indexes()
        self.require_online_primary()
        if self.op.mode == _NEW_SECONDARY:
            self._find_new_secondary()
        else:
            self._find_disks()
        if not self.op.dry_run:
            self._refuse()
        self.ctx.log.warn(f"{self._not_offered()}: only a dry run is possible")

    def execute(self) -> NoReturn:
        """Refuse; the checks have already succeeded."""
        self._refuse()

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
                    f" {count}",
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
        self.remote = new.uuid
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
        self.ctx.log.message(
            f"all disks of instance {instance.name} would get their second copy on"
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
        named = ", ".join(f"disk/{index}" for index in indexes)
        summary = f"{named} would be replaced on node {where.name}" if named else "none"
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
        rows = self.ctx.rpc.call_one(
            "blockdev_getmirrorstatus_multi", node.uuid, wires
        ).require(what, ecodes.ECODE_ENVIRON)
        faulty = []
        for index, (is_known, status) in enumerate(rows or ()):
            if not is_known:
                raise errors.OpPrereqError(
                    f"{what}: node {node.name}: disk/{index}: {status}",
                    ecodes.ECODE_ENVIRON,
                )
            if status is not None and status.get("ldisk_status") == _FAULTY:
                faulty.append(index)
        return faulty

    def _not_offered(self) -> str:
        template = self.ctx.snapshot.disk_template(self.instance)
        return (
            f"instance {self.instance.name}: replacing disks of template {template} is"
            " not offered by this release"
        )

    def _refuse(self) -> NoReturn:
        raise self.prereq(f"{self._not_offered()}, so no disk can be replaced")
