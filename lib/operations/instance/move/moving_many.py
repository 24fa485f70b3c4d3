"""Units that submit jobs which move many instances: off nodes, and to other groups."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ganeti.base.constants import disks, ecodes
from ganeti.master import iallocator, locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import allocation, base
from ganeti.operations.instance import common
from ganeti.operations.instance.move import move_target

_LEVELS = (locking.Level.INSTANCE, locking.Level.NODEGROUP, locking.Level.NODE)


def declare_shared(
    locks: base.LockRequest,
    *,
    instances: Sequence[str],
    groups: Sequence[str],
    nodes: Any,
) -> None:
    """Declare the locks for planning: instances by name, groups, nodes, all shared."""
    locks.names[locking.Level.INSTANCE] = list(instances)
    locks.names[locking.Level.NODEGROUP] = list(groups)
    locks.names[locking.Level.NODE] = nodes
    locks.shared.update(_LEVELS)


def instances_on(
    snapshot: objects.Snapshot, node: str, mode: str
) -> list[objects.Instance]:
    """Return the instances that leave a node, sorted by name.

    Args:
        snapshot: the configuration.
        node: its uuid.
        mode: ``primary-only``, ``secondary-only`` or ``all``.
    """
    uuids: set[str] = set()
    if mode in ("primary-only", "all"):
        uuids |= snapshot.primary_instances(node)
    if mode in ("secondary-only", "all"):
        uuids |= snapshot.secondary_instances(node)
    instances = [snapshot.instances[uuid] for uuid in uuids]
    return sorted(instances, key=lambda item: item.name)


def split_local_reservations(
    snapshot: objects.Snapshot, instances: Sequence[objects.Instance]
) -> tuple[list[objects.Instance], list[objects.Instance]]:
    """Return the forthcoming instances with local disks, and the other instances.

    Allocators do not move instances of such templates, as their data is on one node;
    forthcoming ones have none, so they move first.
    """
    local: list[objects.Instance] = []
    others: list[objects.Instance] = []
    for instance in instances:
        is_local = snapshot.disk_template(instance) not in disks.DTS_MIRRORED
        (local if instance.forthcoming and is_local else others).append(instance)
    return local, others


def names(instances: Sequence[objects.Instance]) -> list[str]:
    """Return instance names."""
    return [instance.name for instance in instances]


class NodeMigrate(base.LogicalUnit[opcodes.NodeMigrate]):
    """Unit that submits one job per instance; each job chooses its own target."""

    HOOKS_PATH: ClassVar[str | None] = "node-migrate"
    HOOKS_TYPE: ClassVar[str | None] = "NODE"

    def check_arguments(self) -> None:
        """Check that the request is not contradictory."""
        if self.op.iallocator and self.op.target_node:
            raise self.prereq(
                f"node {self.op.node_name}: give either an allocator or a target node"
            )

    def expand_names(self) -> None:
        """Look the nodes up and lock the source."""
        snapshot = self.ctx.snapshot
        self.node = lookup.expand_node(snapshot, self.op.node_name)
        if self.op.target_node:
            lookup.expand_node(snapshot, self.op.target_node)
        self.locks.names[locking.Level.NODE] = [self.node]
        self.locks.shared.add(locking.Level.NODE)

    def hooks_env(self) -> dict[str, Any]:
        """Return the node and the run-time memory flag."""
        return {
            "OP_TARGET": self.ctx.snapshot.nodes[self.node].name,
            "NODE_NAME": self.ctx.snapshot.nodes[self.node].name,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
        }

    def execute(self) -> base.SubmitJobs:
        """Return the jobs."""
        snapshot, op = self.ctx.snapshot, self.op
        instances = sorted(
            (snapshot.instances[u] for u in snapshot.primary_instances(self.node)),
            # Reservations first, as they move without cost.
            key=lambda item: (not item.forthcoming, item.name),
        )
        return base.SubmitJobs(
            [
                [
                    opcodes.InstanceMigrate(
                        instance_name=item.name,
                        mode=op.mode,
                        live=op.live,
                        iallocator=op.iallocator,
                        target_node=op.target_node,
                        allow_runtime_changes=op.allow_runtime_changes,
                        ignore_ipolicy=op.ignore_ipolicy,
                        # The failover of a reservation changes the record alone.
                        allow_failover=item.forthcoming,
                    )
                ]
                for item in instances
            ]
        )


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
        self.instances = instances_on(snapshot, self.node, self.op.mode)
        declare_shared(
            self.locks,
            instances=names(self.instances),
            groups=[snapshot.nodes[self.node].group],
            nodes=base.ALL,
        )

    def check_prereq(self) -> None:
        """Check that the instances are still the same."""
        current = instances_on(self.ctx.snapshot, self.node, self.op.mode)
        if names(current) != names(self.instances):
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
        # A dry run ends after the checks, so the allocator is asked here.
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
        own, planned = split_local_reservations(self.ctx.snapshot, self.instances)
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
                names(planned),
                self.op.mode,
                ignore_soft_errors=bool(self.op.ignore_soft_errors),
            ),
            f"node {self.op.node_name}",
            early_release=self.op.early_release,
            explain=bool(self.op.dry_run),
        )
        return base.SubmitJobs([*jobs, *others.jobs])


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
        declare_shared(
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
                for instance in instances_on(snapshot, node, "all")
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
        nodes = self.with_master(sorted(self.ctx.snapshot.nodes_in_group(self.group)))
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
                # -1 is the preceding job of this submission. Without states, any end of
                # it counts but a cancellation, which cancels this job, too.
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


class InstanceChangeGroup(
    allocation.Submitting, common.InstanceUnit[opcodes.InstanceChangeGroup]
):
    """Unit that asks the allocator how to move an instance to another group."""

    HOOKS_PATH: ClassVar[str | None] = "instance-change-group"
    NEEDS_EXISTING: ClassVar[str] = ""

    def expand_names(self) -> None:
        """Look the groups up and lock all objects that planning reads."""
        super().expand_names()
        snapshot = self.ctx.snapshot
        names = self.op.target_groups or []
        self.targets = [lookup.expand_group(snapshot, name) for name in names]
        self.own = snapshot.nodes[self.instance.primary_node].group
        if self.own in self.targets:
            raise self.prereq(
                f"instance {self.instance.name}: is already in group"
                f" {snapshot.nodegroups[self.own].name}"
            )
        if not self.targets:
            self.targets = [uuid for uuid in snapshot.nodegroups if uuid != self.own]
        if not self.targets:
            raise self.prereq(
                f"instance {self.instance.name}: there is no other group",
                ecodes.ECODE_STATE,
            )
        declare_shared(
            self.locks,
            instances=[self.instance.name],
            groups=sorted([self.own, *self.targets]),
            nodes=base.ALL,
        )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and the groups."""
        return super().hooks_env() | {"TARGET_GROUPS": " ".join(self.targets)}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, not the nodes of the instance."""
        master = self.with_master(())
        return master, master

    def check_prereq(self) -> None:
        """Ask the allocator during the checks if this is a dry run."""
        if self.op.dry_run:
            self.jobs()

    def jobs(self) -> base.SubmitJobs:
        """Return the jobs."""
        name = self.instance.name
        local, _others = split_local_reservations(self.ctx.snapshot, [self.instance])
        if local:
            return self._reservation_job()
        return allocation.evacuation_jobs(
            self.ctx,
            self.op.iallocator,
            iallocator.ChangeGroup([name], self.targets),
            f"instance {name}",
            early_release=self.op.early_release,
            explain=bool(self.op.dry_run),
        )

    def _reservation_job(self) -> base.SubmitJobs:
        """Return the job that moves a forthcoming instance with local disks."""
        target = move_target.choose_reserved_target(
            self.ctx,
            self.instance,
            self.op.iallocator,
            explain=bool(self.op.dry_run),
            groups=self.targets,
        )
        move = opcodes.InstanceMove(
            instance_name=self.instance.name,
            target_node=self.ctx.snapshot.nodes[target].name,
        )
        return base.SubmitJobs([[move]])
