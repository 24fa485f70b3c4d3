"""OP_NODE_EVACUATE: submit jobs that move instances away from a node."""

from ganeti.base.constants import ecodes
from ganeti.master import iallocator
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations import allocation, base
from ganeti.operations.instance.move import move_jobs


class NodeEvacuate(allocation.Submitting, base.LogicalUnit[opcodes.NodeEvacuate]):
    """Unit that plans with an allocator, or with a named node for secondaries."""

    def check_arguments(self) -> None:
        """Check that the request is not contradictory."""
        op = self.op
        if op.iallocator and op.remote_node:
            raise self.prereq(
                f"node {op.node_name}: give either an allocator or a new secondary"
            )
        if op.mode == "all":
            raise self.prereq(
                f"node {op.node_name}: evacuate primary and secondary instances with"
                " separate requests"
            )
        if op.remote_node and op.mode != "secondary-only":
            raise self.prereq(
                f"node {op.node_name}: a new secondary can only be given for"
                " secondary instances"
            )

    def expand_names(self) -> None:
        """Look the node up and lock all objects that planning reads."""
        snapshot = self.ctx.snapshot
        self.node = lookup.expand_node(snapshot, self.op.node_name)
        if self.op.remote_node:
            self.remote = lookup.expand_node(snapshot, self.op.remote_node)
            if self.remote == self.node:
                raise self.prereq(
                    f"node {self.op.node_name}: cannot be evacuated to itself"
                )
        self.instances = move_jobs.instances_on(snapshot, self.node, self.op.mode)
        move_jobs.declare_shared(
            self.locks,
            instances=move_jobs.names(self.instances),
            groups=[snapshot.nodes[self.node].group],
            nodes=base.ALL,
        )

    def check_prereq(self) -> None:
        """Check that the instances are still the same."""
        current = move_jobs.instances_on(self.ctx.snapshot, self.node, self.op.mode)
        if move_jobs.names(current) != move_jobs.names(self.instances):
            raise self.prereq(
                f"node {self.op.node_name}: its instances changed while the job"
                " waited for locks, try again",
                ecodes.ECODE_STATE,
            )
        if self.op.remote_node:
            for instance in current:
                if instance.primary_node == self.remote:
                    raise self.prereq(
                        f"instance {instance.name}: its primary node is"
                        f" {self.op.remote_node}, which cannot be its secondary too"
                    )
        if self.op.dry_run:
            self.jobs()

    def jobs(self) -> base.SubmitJobs:
        """Return the jobs."""
        if not self.instances:
            return base.SubmitJobs([])
        if self.op.remote_node:
            return base.SubmitJobs(
                [
                    [
                        opcodes.InstanceReplaceDisks(
                            instance_name=instance.name,
                            mode="replace_new_secondary",
                            disks=[],
                            remote_node=self.op.remote_node,
                            early_release=self.op.early_release,
                        )
                    ]
                    for instance in self.instances
                ]
            )
        own, planned = move_jobs.split_local_reservations(
            self.ctx.snapshot, self.instances
        )
        jobs = [
            [
                opcodes.InstanceFailover(
                    instance_name=instance.name, iallocator=self.op.iallocator
                )
            ]
            for instance in own
        ]
        if not planned:
            return base.SubmitJobs(jobs)
        others = allocation.evacuation_jobs(
            self.ctx,
            self.op.iallocator,
            iallocator.NodeEvacuate(
                move_jobs.names(planned),
                self.op.mode,
                ignore_soft_errors=bool(self.op.ignore_soft_errors),
            ),
            f"node {self.op.node_name}",
            early_release=self.op.early_release,
            explain=bool(self.op.dry_run),
        )
        return base.SubmitJobs([*jobs, *others.jobs])
