"""OP_CLUSTER_VERIFY: submit one job for the configuration and one per group."""

from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit, SubmitJobs


class ClusterVerify(LogicalUnit[opcodes.ClusterVerify]):
    """Unit that submits the verification jobs, first that of the configuration."""

    READS_ONLY = True

    def check_prereq(self) -> None:
        """Look the groups up."""
        self.groups = lookup.group_names(self.ctx.snapshot, self.op.group_name)

    def execute(self) -> SubmitJobs:
        """Return the jobs; jobs of groups wait for the configuration's job."""
        jobs: list[list[opcodes.Opcode]] = []
        if not self.op.group_name:
            jobs.append(
                [
                    opcodes.ClusterVerifyConfig(
                        verbose=self.op.verbose,
                        error_codes=self.op.error_codes,
                        debug_simulate_errors=self.op.debug_simulate_errors,
                        ignore_errors=self.op.ignore_errors,
                    )
                ]
            )
        jobs.extend(
            [self._group(name, distance)]
            for distance, name in enumerate(self.groups, start=1)
        )
        return SubmitJobs(jobs)

    def _group(self, name: str, distance: int) -> opcodes.Opcode:
        return opcodes.ClusterVerifyGroup(
            group_name=name,
            verbose=self.op.verbose,
            error_codes=self.op.error_codes,
            debug_simulate_errors=self.op.debug_simulate_errors,
            ignore_errors=self.op.ignore_errors,
            skip_checks=self.op.skip_checks,
            verify_clutter=self.op.verify_clutter,
            depends=None if self.op.group_name else [(-distance, [])],
        )
