"""OP_INSTANCE_MULTI_ALLOC: place several new instances with one allocator run."""

from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text import messages
from ganeti.master import iallocator, locking
from ganeti.model import opcodes
from ganeti.operations import allocation, base
from ganeti.operations.instance.create import create_request
from ganeti.operations.instance.disks import disk_specs


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
                create_request.allocation_request(
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
