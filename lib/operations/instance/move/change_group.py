"""OP_INSTANCE_CHANGE_GROUP: submit jobs that move an instance to another group."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ganeti.base.constants import ecodes
from ganeti.master import iallocator
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations import allocation, base
from ganeti.operations.instance import common
from ganeti.operations.instance.move import move_jobs, reserved_moves


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
        move_jobs.declare_shared(
            self.locks,
            instances=[self.instance.name],
            groups=sorted([self.own, *self.targets]),
            nodes=base.ALL,
        )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and the groups."""
        return super().hooks_env() | {"TARGET_GROUPS": " ".join(self.targets)}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        nodes = self.with_master(())
        return nodes, nodes

    def check_prereq(self) -> None:
        """Ask the allocator during the checks if this is a dry run."""
        if self.op.dry_run:
            self.jobs()

    def jobs(self) -> base.SubmitJobs:
        """Return the jobs."""
        name = self.instance.name
        local, _others = move_jobs.split_local_reservations(
            self.ctx.snapshot, [self.instance]
        )
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
        target = reserved_moves.choose_target(
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
