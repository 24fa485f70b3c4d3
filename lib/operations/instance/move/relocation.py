"""Code shared by failover and migration: the target and its checks."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.master import iallocator, locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import allocation
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.move import reserved_moves

O = TypeVar("O", bound=opcodes.InstanceFailover | opcodes.InstanceMigrate)  # noqa: E741

#: Templates whose data every node of the cluster can access.
_EXTERNAL: Final = frozenset(disk_constants.DTS_EXT_MIRROR)
_MIRRORED: Final = frozenset(disk_constants.DTS_MIRRORED)


class RelocationUnit(common.InstanceUnit[O]):
    """Base of units that move an instance to a node that has its data."""

    LOCK_NODES = True
    NEEDS_EXISTING = ""

    target: str
    source: str

    def expand_names(self) -> None:
        """Look instance and target up."""
        super().expand_names()
        if self.op.iallocator and self.op.target_node:
            raise self.prereq(
                f"instance {self.instance.name}: give either an allocator or a node"
            )
        target = self._find_target()
        self.wants_allocator = target is None
        self.target = target or ""
        self.source = self.instance.primary_node
        if self.wants_allocator:
            is_new = self.instance.forthcoming
            kind = iallocator.Allocate if is_new else iallocator.Relocate
            allocation.names(
                self.ctx.snapshot,
                self.op.iallocator,
                f"instance {self.instance.name}: needs a target node",
                kind.type,
            )

    def expand_interrupted(self, source: str, target: str) -> None:
        """Look the instance up; an interrupted operation has its nodes."""
        super().expand_names()
        self.wants_allocator = False
        self.source, self.target = source, target

    def declare_locks(self, level: locking.Level) -> None:
        """Declare all nodes if the allocator chooses, else the affected ones."""
        if self.wants_allocator:
            allocation.lock_all_nodes(self.locks)
        else:
            super().declare_locks(level)

    def nodes_to_lock(self) -> Sequence[str]:
        """Return the instance's nodes, source and target."""
        known = self.ctx.snapshot.instance_nodes(self.instance)
        return sorted({*known, self.source, self.target})

    def save_failover(self, *, is_stopped: bool) -> None:
        """Store what a restarted master needs to continue a failover."""
        del is_stopped
        raise errors.ProgrammerError(f"{type(self).__name__} cannot continue")

    def choose_target(self) -> None:
        """Have the allocator choose if the request names no node."""
        if self.wants_allocator:
            find = (
                reserved_moves.choose_target
                if self.instance.forthcoming
                else allocation.relocation
            )
            self.target = find(
                self.ctx,
                self.instance,
                self.op.iallocator,
                explain=bool(self.op.dry_run),
            )
            allocation.keep_only(self.ctx, [self.source, self.target])

    def _find_target(self) -> str | None:
        instance, snapshot = self.instance, self.ctx.snapshot
        template = snapshot.disk_template(instance)
        # Without data, a forthcoming instance can move to any node.
        is_bound = not instance.forthcoming or template == "drbd"
        if template not in _MIRRORED and is_bound:
            raise self.prereq(
                f"instance {instance.name}: disk template {template} keeps its data"
                " on one node, so it cannot run on another node",
                ecodes.ECODE_STATE,
            )
        name = self.op.target_node
        if template not in _EXTERNAL and is_bound:
            if name:
                raise self.prereq(
                    f"instance {instance.name}: it can only move to its secondary"
                    " node, do not name a target node"
                )
            return snapshot.secondary_nodes(instance)[0]
        if name:
            return lookup.expand_node(snapshot, name)
        if getattr(self.op, "cleanup", False):
            return instance.primary_node
        return None

    def check_target(
        self, memory_mib: int | None, *, is_rescue: bool = False
    ) -> int | None:
        """Check that the target can take the instance; return its free memory.

        Args:
            memory_mib: minimum memory of the instance there; None if it will not run.
            is_rescue: the instance cannot run where it is, so it may take memory that
                reservations of low priority hold.

        Raises:
            OpPrereqError: the target cannot take it; contains the reason.
        """
        self.choose_target()
        instance, snapshot = self.instance, self.ctx.snapshot
        if instance.primary_node != self.source:
            raise errors.OpPrereqError(
                f"instance {instance.name}: moved while the job waited for locks, try"
                " again",
                ecodes.ECODE_STATE,
            )
        if self.target == self.source:
            raise errors.OpPrereqError(
                f"instance {instance.name}: is already on node"
                f" {snapshot.nodes[self.target].name}",
                ecodes.ECODE_STATE,
            )
        node = checks.node_takes_instances(snapshot, self.target, instance.name)
        if not self.op.ignore_ipolicy:
            self._check_policy(node)
        if node.group != self.primary.group:
            nic_specs.check_connections(snapshot, instance, node.group)
        nic_specs.check_bridges(self.ctx, instance.nics, self.target, instance.name)
        if instance.forthcoming:
            reserved_moves.check_target(self.ctx, instance, self.target)
            return None
        if memory_mib is None:
            return None
        filled = params.fill_hvparams(snapshot, instance)
        return checks.require_memory(
            self.ctx,
            self.target,
            instance.name,
            memory_mib,
            hypervisor=instance.hypervisor,
            hv=filled,
            rule=capacity.MemoryRule(
                most_mib=max(memory_mib, self._most_mib()), ignore_low=is_rescue
            ),
        )

    def _most_mib(self) -> int:
        """Return the memory that the instance takes at the target if it is there."""
        return int(params.fill_beparams(self.ctx.snapshot, self.instance)["maxmem"])

    def _check_policy(self, node: objects.Node) -> None:
        instance, snapshot = self.instance, self.ctx.snapshot
        if node.group == self.primary.group:
            return
        problems = checks.problems_of(snapshot, instance, node.group)
        checks.require_policy(problems, snapshot, node.group, instance.name)

    def relocation_env(self) -> dict[str, Any]:
        """Return the variables about old and new nodes."""
        snapshot = self.ctx.snapshot
        old, new = (snapshot.nodes[uuid].name for uuid in (self.source, self.target))
        is_internal = snapshot.disk_template(self.instance) not in _EXTERNAL
        return {
            "OLD_PRIMARY": old,
            "NEW_PRIMARY": new,
            "OLD_SECONDARY": new if is_internal else "",
            "NEW_SECONDARY": old if is_internal else "",
        }

    def commit_primary(self, node: str) -> None:
        """Record the new primary node without a new serial, as documented."""
        if self.instance.forthcoming:
            reserved_moves.move(self.ctx, self.instance, node)
            return
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.set_primary_node(self.uuid, node)
