"""The target of a move and its checks; moves of forthcoming instances."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.master import iallocator, locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import allocation, base
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.disks import volumes


def check_reserved_target(
    ctx: base.Context,
    instance: objects.Instance,
    target: str,
) -> None:
    """Refuse a node whose resources do not suffice, reservations considered.

    Args:
        ctx: dependencies of the opcode.
        instance: the forthcoming instance.
        target: uuid of the node.

    Raises:
        OpPrereqError: its memory or space does not suffice, or it does not answer.
    """
    snapshot = ctx.snapshot
    checks.require_memory(
        ctx,
        target,
        instance.name,
        params.fill_beparams(snapshot, instance)["maxmem"],
        hypervisor=instance.hypervisor,
        hv=params.fill_hvparams(snapshot, instance),
    )
    disks = snapshot.instance_disks(instance)
    volumes.require_space(ctx, [target], disks, instance.name)
    if snapshot.disk_template(instance) == "file":
        size_mib = sum(disk.size for disk in snapshot.instance_disks(instance))
        capacity.require_space(ctx, target, instance.name, "file", size_mib)


def choose_reserved_target(
    ctx: base.Context,
    instance: objects.Instance,
    allocator: str | None,
    *,
    explain: bool = False,
    groups: Sequence[str] = (),
) -> str:
    """Return the uuid of the node that the allocator would choose now.

    The node is in the instance's group, or in the first of the given groups that has
    place.

    Unlike an existing instance, a forthcoming one of any disk template can move.

    Raises:
        OpPrereqError: there is no allocator, or none found a node.
    """
    snapshot, what = ctx.snapshot, f"instance {instance.name}"
    backend = params.fill_beparams(snapshot, instance)
    group, *others = groups or [snapshot.nodes[instance.primary_node].group]
    request = iallocator.Allocate(
        name=instance.name,
        disk_template=snapshot.disk_template(instance),
        tags=sorted(instance.tags),
        os=instance.os,
        vcpus=backend["vcpus"],
        memory=backend["maxmem"],
        spindle_use=backend["spindle_use"],
        disks=[
            {"size": disk.size, "mode": disk.mode}
            for disk in snapshot.instance_disks(instance)
        ],
        nics=[{"mac": nic.mac, "ip": nic.ip} for nic in instance.nics],
        hypervisor=instance.hypervisor,
        group_name=snapshot.nodegroups[group].name,
        restrict_to=sorted(
            node.name
            for node in snapshot.nodes.values()
            if node.uuid != instance.primary_node
        ),
    )
    try:
        (name,) = allocation.ask(
            ctx,
            allocation.names(snapshot, allocator, what, request.type),
            request,
            what,
            replaced=instance.uuid,
            explain=explain,
        )
    except errors.OpPrereqError as err:
        # Only a lack of resources depends on the group; another error would repeat.
        if not others or err.args[1:] != (ecodes.ECODE_NORES,):
            raise
        ctx.log.info(f"{what}: no place in group {request.group_name}")
        return choose_reserved_target(
            ctx, instance, allocator, explain=explain, groups=others
        )
    return lookup.expand_node(snapshot, name)


def move_reserved(ctx: base.Context, instance: objects.Instance, target: str) -> None:
    """Record another node."""
    ctx.log.message(
        f"moving the reservation of instance {instance.name} to node"
        f" {ctx.snapshot.nodes[target].name}"
    )
    with ctx.config.edit(ctx.owner) as edit:
        edit.move_reserved(instance.uuid, target)


O = TypeVar("O", bound=opcodes.InstanceFailover | opcodes.InstanceMigrate)  # noqa: E741

#: Templates whose data every node of the cluster can access.
_EXTERNAL: Final = frozenset(disks.DTS_EXT_MIRROR)
_MIRRORED: Final = frozenset(disks.DTS_MIRRORED)


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
            # Called for its refusal alone, before the job waits for locks.
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
                choose_reserved_target
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
        # A clean-up moves nothing, and finds the guest itself.
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
            check_reserved_target(self.ctx, instance, self.target)
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
            move_reserved(self.ctx, self.instance, node)
            return
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.set_primary_node(self.uuid, node)
