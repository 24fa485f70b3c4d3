"""The nodes of new instances: named in the request, or chosen by an allocator."""

from typing import Any

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.text import messages
from ganeti.master import iallocator, locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import allocation, base
from ganeti.operations.instance import checks
from ganeti.operations.instance.create import creation_plan, request_parts
from ganeti.operations.instance.disks import disk_specs, mirror_records


class NodeChoice:
    """The nodes of one new instance, and their locks."""

    primary: str
    #: The other node of mirrored disks.
    secondary: str | None = None

    def __init__(
        self, ctx: base.Context, op: opcodes.InstanceCreate, locks: base.LockRequest
    ) -> None:
        self._ctx, self._op, self._locks = ctx, op, locks

    @property
    def nodes(self) -> list[str]:
        """The nodes of the instance, the primary one first."""
        return [self.primary, *([self.secondary] if self.secondary else ())]

    def take(self, instance: objects.Instance) -> None:
        """Take the nodes of an instance that has its record."""
        self.primary = instance.primary_node
        secondaries = self._ctx.snapshot.secondary_nodes(instance)
        self.secondary = next(iter(secondaries), None)

    def take_planned(self, plan: creation_plan.CreationPlan) -> None:
        """Take the nodes of a plan, with the locks that a wipe of its disks holds.

        Raises:
            OpPrereqError: one was removed; the notes remove what the other one has.
        """
        self.primary = plan.instance.primary_node
        mirrors = filter(mirror_records.is_mirror, plan.disks)
        others = (node for disk in mirrors for node in disk.nodes)
        self.secondary = next((n for n in others if n != self.primary), None)
        for node in self.nodes:
            lookup.expand_node(self._ctx.snapshot, node)
        self.lock()
        self._locks.shared.add(locking.Level.NODE)

    def lock(self) -> None:
        """Declare the locks of the nodes and of their resources."""
        self._locks.names[locking.Level.NODE] = self.nodes
        self._locks.names[locking.Level.NODE_RES] = self.nodes

    def check_request(self, name: str, template: str) -> None:
        """Refuse nodes that exclude each other or an allocator."""
        op = self._op
        if op.iallocator and op.pnode:
            raise errors.refusal(
                f"instance {name}: give either an allocator or a primary node"
            )
        is_mirrored = template in disks.DTS_INT_MIRROR
        if op.snode and not op.pnode and is_mirrored:
            raise errors.refusal(
                f"instance {name}: a secondary node needs a primary node beside it"
            )
        if op.snode and not is_mirrored:
            self._ctx.log.warn(
                f"template {template} has no secondary node; the given one is ignored"
            )

    def find(self, name: str, template: str) -> None:
        """Lock the named nodes, or all nodes if an allocator is to choose."""
        op, snapshot = self._op, self._ctx.snapshot
        if not op.pnode:
            self._allocators = allocation.names(
                snapshot, op.iallocator, f"instance {name}", iallocator.Allocate.type
            )
            allocation.lock_all_nodes(
                self._locks, opportunistic=1 if op.opportunistic_locking else 0
            )
            return
        self.primary = lookup.expand_node(snapshot, op.pnode)
        if template in disks.DTS_INT_MIRROR:
            if not op.snode:
                raise errors.refusal(
                    f"instance {name}: disk template {template} needs a secondary"
                    " node beside the primary one (-n PRIMARY:SECONDARY), or an"
                    " allocator"
                )
            self.secondary = lookup.expand_node(snapshot, op.snode)
            mirror_records.check_nodes(snapshot, template, self.nodes, name)
        self.lock()

    def choose(self, name: str, template: str) -> None:
        """Have an allocator choose if no node is named, and keep those locks."""
        ctx, op, snapshot = self._ctx, self._op, self._ctx.snapshot
        if op.pnode:
            return
        restrict_to = None
        if op.opportunistic_locking:
            # Other jobs hold the locks of the other nodes, so these cannot be chosen.
            held = ctx.locks.owned(locking.Level.NODE)
            restrict_to = sorted(snapshot.nodes[uuid].name for uuid in held)
        chosen = allocation.ask(
            ctx,
            self._allocators,
            request_parts.allocation_request(snapshot, op, name, template, restrict_to),
            f"instance {name}",
            # More locks may find a place; the error lets the client try again.
            is_temporary=restrict_to is not None,
            explain=bool(op.dry_run),
        )
        self.primary, *others = (lookup.expand_node(snapshot, node) for node in chosen)
        self.secondary = others[0] if others else None
        allocation.keep_only(ctx, self.nodes)

    def check(self, name: str) -> None:
        """Refuse nodes that cannot take the instance."""
        snapshot, wanted = self._ctx.snapshot, self._op.group_name
        node = checks.node_takes_instances(snapshot, self.primary, name)
        group = lookup.expand_group(snapshot, wanted) if wanted is not None else None
        if group is not None and node.group != group:
            raise errors.refusal(
                f"instance {name}: node {node.name} is not in"
                f" group {snapshot.nodegroups[group].name}"
            )
        if self.secondary is not None:
            other = checks.node_takes_instances(snapshot, self.secondary, name)
            if other.group != node.group:
                self._ctx.log.warn(
                    f"nodes {node.name} and {other.name} are in different groups"
                )


class InstanceMultiAlloc(base.LogicalUnit[opcodes.InstanceMultiAlloc]):
    """Unit that chooses nodes for all requests and submits one job per placement."""

    def check_arguments(self) -> None:
        """Decode the requests and check that they are of one kind."""
        self.requests: list[opcodes.InstanceCreate] = []
        for data in self.op.instances:
            op = opcodes.decode(data)
            if not isinstance(op, opcodes.InstanceCreate):
                raise self.prereq(f"wanted OP_INSTANCE_CREATE, found {op.op_id()}")
            if op.iallocator:
                raise self.prereq(
                    f"instance {op.instance_name}: name the allocator for the whole"
                    " request, not per instance"
                )
            self.requests.append(op)
        names = [op.instance_name for op in self.requests]
        for name in messages.repeated(names):
            raise self.prereq(f"instance {name}: is requested twice")
        placed = [op for op in self.requests if op.pnode]
        if placed and len(placed) != len(self.requests):
            raise self.prereq("give nodes for all instances or for none of them")
        if placed and self.op.iallocator:
            raise self.prereq("give either an allocator or the nodes")
        self.needs_allocator = bool(self.requests) and not placed

    def expand_names(self) -> None:
        """Lock all nodes when nodes are to be chosen."""
        if not self.needs_allocator:
            return
        self.allocators = allocation.names(
            self.ctx.snapshot,
            self.op.iallocator,
            "instances",
            iallocator.MultiAllocate.type,
        )
        count = 1 if self.op.opportunistic_locking else 0
        allocation.lock_all_nodes(self.locks, opportunistic=count)
        if not count:
            # Only planning reads the nodes: each submitted job locks its own ones.
            levels = (locking.Level.NODE, locking.Level.NODE_RES)
            self.locks.shared.update(levels)

    def check_prereq(self) -> None:
        """Refuse names in use, then ask the allocator."""
        snapshot = self.ctx.snapshot
        for op in self.requests:
            if snapshot.uuid_of("instances", op.instance_name) is not None:
                raise self.prereq(
                    f"instance {op.instance_name}: already exists", ecodes.ECODE_EXISTS
                )
        if self.needs_allocator:
            self.placement = self._allocate()

    def _allocate(self) -> iallocator.MultiPlacement:
        snapshot, restrict_to = self.ctx.snapshot, None
        if self.op.opportunistic_locking:
            held = self.ctx.locks.owned(locking.Level.NODE)
            restrict_to = sorted(snapshot.nodes[uuid].name for uuid in held)
        requests = []
        for op in self.requests:
            template = op.disk_template or snapshot.cluster.enabled_disk_templates[0]
            disk_specs.check_template(snapshot, template, op.instance_name)
            requests.append(
                request_parts.allocation_request(
                    snapshot, op, op.instance_name, template, restrict_to
                )
            )
        placement = allocation.ask(
            self.ctx,
            self.allocators,
            iallocator.MultiAllocate(requests),
            "instances",
            is_temporary=restrict_to is not None,
            explain=bool(self.op.dry_run),
        )
        if not isinstance(placement, iallocator.MultiPlacement):
            raise errors.ProgrammerError(f"wanted a placement, found {placement!r}")
        return placement

    def dry_run_result(self) -> dict[str, Any]:
        """Return which instances have a place."""
        if not self.needs_allocator:
            names = [op.instance_name for op in self.requests]
            return {"jobs": [], "allocatable": names, "failed": []}
        return {
            "jobs": [],
            "allocatable": sorted(self.placement.placed),
            "failed": list(self.placement.failed),
        }

    def execute(self) -> base.SubmitJobs:
        """Return the creation jobs."""
        result = self.dry_run_result()
        jobs: list[list[opcodes.Opcode]] = []
        for op in self.requests:
            if not self.needs_allocator:
                jobs.append([op])
            elif op.instance_name in self.placement.placed:
                nodes = self.placement.placed[op.instance_name]
                second = nodes[1] if len(nodes) > 1 else op.snode
                jobs.append([op.replace(pnode=nodes[0], snode=second)])
        return base.SubmitJobs(
            jobs, {key: result[key] for key in ("allocatable", "failed")}
        )
