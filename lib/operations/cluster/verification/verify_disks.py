"""OP_CLUSTER_VERIFY_DISKS: submit one job per group that checks its disks."""

from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit, SubmitJobs


class ClusterVerifyDisks(LogicalUnit[opcodes.ClusterVerifyDisks]):
    """Unit that submits one job per group."""

    READS_ONLY = True

    def check_prereq(self) -> None:
        """Look the groups up."""
        self.groups = lookup.group_names(self.ctx.snapshot, self.op.group_name)

    def execute(self) -> SubmitJobs:
        """Return one job per group."""
        return SubmitJobs(
            [
                [opcodes.GroupVerifyDisks(group_name=name, is_strict=self.op.is_strict)]
                for name in self.groups
            ]
        )
