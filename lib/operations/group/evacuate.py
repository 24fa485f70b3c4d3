"""OP_GROUP_EVACUATE: submit jobs that take all instances out of a group."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ganeti.base.constants import ecodes
from ganeti.master import iallocator
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations import allocation, base
from ganeti.operations.instance.move import move_jobs


class GroupEvacuate(allocation.Submitting, base.LogicalUnit[opcodes.GroupEvacuate]):
    """Unit that asks the allocator how to move all instances out of a group."""

    HOOKS_PATH: ClassVar[str | None] = "group-evacuate"
    HOOKS_TYPE: ClassVar[str | None] = "GROUP"

    def expand_names(self) -> None:
        """Look groups and instances up, and lock all objects that planning reads."""
        snapshot = self.ctx.snapshot
        self.group = lookup.expand_group(snapshot, self.op.group_name)
        names = self.op.target_groups or []
        self.targets = [lookup.expand_group(snapshot, name) for name in names]
        if self.group in self.targets:
            raise self.prereq(
                f"group {self.op.group_name}: cannot be evacuated to itself"
            )
        if not self.targets:
            self.targets = [u for u in snapshot.nodegroups if u != self.group]
        if not self.targets:
            raise self.prereq(
                f"group {self.op.group_name}: there is no other group",
                ecodes.ECODE_STATE,
            )
        self.instances = self._instances()
        move_jobs.declare_shared(
            self.locks,
            instances=self.instances,
            groups=sorted([self.group, *self.targets]),
            nodes=base.ALL,
        )

    def _instances(self) -> list[str]:
        snapshot = self.ctx.snapshot
        return sorted(
            {
                instance.name
                for node in snapshot.nodes_in_group(self.group)
                for instance in move_jobs.instances_on(snapshot, node, "all")
            }
        )

    def check_prereq(self) -> None:
        """Check that the instances are still the same."""
        if self._instances() != self.instances:
            raise self.prereq(
                f"group {self.op.group_name}: its instances changed while the job"
                " waited for locks, try again",
                ecodes.ECODE_STATE,
            )
        if self.op.dry_run:
            self.jobs()

    def hooks_env(self) -> dict[str, Any]:
        """Return the groups."""
        return {
            "OP_TARGET": self.op.group_name,
            "GROUP_NAME": self.op.group_name,
            "TARGET_GROUPS": " ".join(self.targets),
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master and the group's nodes, for both phases."""
        snapshot = self.ctx.snapshot
        members = sorted(snapshot.nodes_in_group(self.group))
        nodes = list(dict.fromkeys([snapshot.cluster.master_node, *members]))
        return nodes, nodes

    def jobs(self) -> base.SubmitJobs:
        """Return the jobs; sequential ones if requested."""
        if not self.instances:
            return base.SubmitJobs([])
        answer = allocation.evacuation_jobs(
            self.ctx,
            self.op.iallocator,
            iallocator.ChangeGroup(self.instances, self.targets),
            f"group {self.op.group_name}",
            early_release=self.op.early_release,
            explain=bool(self.op.dry_run),
        )
        jobs = [[self._failover(op) for op in job] for job in answer.jobs]
        if self.op.sequential:
            jobs = [
                [op.replace(depends=[(-1, [])]) if index else op for op in job]
                for index, job in enumerate(jobs)
            ]
        return base.SubmitJobs(jobs)

    def _failover(self, op: opcodes.Opcode) -> opcodes.Opcode:
        if not (self.op.force_failover and isinstance(op, opcodes.InstanceMigrate)):
            return op
        return opcodes.InstanceFailover(
            instance_name=op.instance_name,
            iallocator=op.iallocator,
            target_node=op.target_node,
            ignore_ipolicy=op.ignore_ipolicy,
        )
