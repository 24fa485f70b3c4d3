"""OP_TEST_ALLOCATOR: show an allocator's request, or run the allocator."""

from typing import Any, ClassVar

from ganeti.base.constants import ecodes
from ganeti.master import iallocator
from ganeti.model import opcodes, serializer
from ganeti.model.objects import lookup
from ganeti.operations import allocation, base


class TestAllocator(base.LogicalUnit[opcodes.TestAllocator]):
    """Unit that builds a request about imaginary or real objects; changes nothing."""

    EXCLUSIVE: ClassVar[bool] = True

    def check_arguments(self) -> None:
        """Check that the request has the parameters of its mode."""
        op = self.op
        needed: dict[str, tuple[str, ...]] = {
            "allocate": ("memory", "vcpus", "disks", "disk_template", "os"),
            "multi-allocate": ("memory", "vcpus", "disks", "disk_template", "os"),
            "node-evacuate": ("instances", "evac_mode"),
            "change-group": ("instances",),
            "relocate": (),
            "allocate-secondary": (),
            "balance": (),
            "capacity": ("memory", "vcpus", "disks"),
        }
        for name in needed[op.mode]:
            if getattr(op, name) is None:
                raise self.prereq(f"allocator mode {op.mode} needs {name}")
        if op.direction == "out" and op.iallocator is None:
            raise self.prereq("running an allocator needs its name")

    def check_prereq(self) -> None:
        """Look up the objects that the request names."""
        snapshot, op = self.ctx.snapshot, self.op
        imaginary = op.mode in ("allocate", "multi-allocate")
        if imaginary and snapshot.uuid_of("instances", op.name) is not None:
            raise self.prereq(
                f"instance {op.name}: already exists", ecodes.ECODE_EXISTS
            )
        self.request = self._request()

    def _request(self) -> iallocator.Request:
        snapshot, op = self.ctx.snapshot, self.op
        if op.mode == "allocate":
            return self._allocate(op.name)
        if op.mode == "multi-allocate":
            return iallocator.MultiAllocate(
                [self._allocate(f"{op.name}-{number}") for number in range(op.count)]
            )
        if op.mode == "relocate":
            instance = snapshot.instances[lookup.expand_instance(snapshot, op.name)]
            return iallocator.relocate(snapshot, instance)
        if op.mode == "allocate-secondary":
            uuid = lookup.expand_instance(snapshot, op.name)
            return iallocator.AllocateSecondary(snapshot.instances[uuid].name)
        if op.mode in ("balance", "capacity"):
            return self._of_cluster()
        names = [
            snapshot.instances[lookup.expand_instance(snapshot, name)].name
            for name in op.instances or []
        ]
        if op.mode == "node-evacuate":
            return iallocator.NodeEvacuate(names, op.evac_mode or "")
        targets = [lookup.expand_group(snapshot, n) for n in op.target_groups or []]
        return iallocator.ChangeGroup(names, targets)

    def _of_cluster(self) -> iallocator.Balance | iallocator.Capacity:
        """Return a request about the whole cluster, or one group of it."""
        op, snapshot, group = self.op, self.ctx.snapshot, self._group()
        if op.mode == "balance":
            return iallocator.Balance(op.count, group)
        size = {
            "memory": op.memory or 0,
            "disk": sum(int(disk["size"]) for disk in op.disks or []),
            "vcpus": op.vcpus or 0,
            "spindles": op.spindle_use,
        }
        template = op.disk_template or snapshot.cluster.enabled_disk_templates[0]
        return iallocator.Capacity(
            disk_template=template,
            sizes=[size],
            spindle_use=op.spindle_use,
            groups=[group] if group else None,
            limit=op.count,
        )

    def _group(self) -> str | None:
        """Return the name of the group in the request, if any."""
        if not self.op.group_name:
            return None
        snapshot = self.ctx.snapshot
        return snapshot.nodegroups[
            lookup.expand_group(snapshot, self.op.group_name)
        ].name

    def _allocate(self, name: str) -> iallocator.Allocate:
        op, cluster = self.op, self.ctx.snapshot.cluster
        disks: list[dict[str, Any]] = [dict(item) for item in op.disks or []]
        return iallocator.Allocate(
            name=name,
            disk_template=op.disk_template or cluster.enabled_disk_templates[0],
            tags=op.tags,
            os=op.os or "",
            vcpus=op.vcpus or 0,
            memory=op.memory or 0,
            spindle_use=op.spindle_use,
            disks=disks,
            nics=op.nics or [],
            hypervisor=op.hypervisor or cluster.enabled_hypervisors[0],
            group_name=self._group(),
        )

    def execute(self) -> str:
        """Return the request, or the allocator's answer, as text."""
        if self.op.direction == "in":
            data = iallocator.question(self.ctx.rpc, self.ctx.snapshot, self.request)
            return serializer.pretty(data)
        names = allocation.names(
            self.ctx.snapshot, self.op.iallocator, "allocator", self.request.type
        )
        answer = iallocator.run(self.ctx.rpc, self.ctx.snapshot, names[0], self.request)
        return serializer.pretty(
            {
                "success": answer.success,
                "info": answer.info,
                "result": _plain(answer.result),
            }
        )


def _plain(result: Any) -> Any:
    if isinstance(result, iallocator.Evacuation):
        jobs = [[opcodes.encode(op) for op in job] for job in result.jobs]
        return [list(result.moved), list(result.failed), jobs]
    if isinstance(result, iallocator.MultiPlacement):
        placed = [[name, list(nodes)] for name, nodes in result.placed.items()]
        return [placed, list(result.failed)]
    return result
