"""``verify``: check the configuration and every node group."""

from ganeti.cli import executor, jobs
from ganeti.cli.context import CommandContext
from ganeti.constants import exitcodes


def run(ctx: CommandContext) -> int:
    """Verify the cluster; fail if a check reports an error."""
    opts = ctx.opts
    skipped = {
        "nplusone_mem": opts.skip_nplusone_mem,
        "hvparam_assessment": opts.skip_hvparam_assessment,
    }
    job, outcomes = executor.run_with_jobs(
        ctx,
        jobs.op(
            "OP_CLUSTER_VERIFY",
            verbose=opts.verbose,
            error_codes=opts.error_codes,
            debug_simulate_errors=opts.simulate_errors,
            skip_checks=[name for name, skip in skipped.items() if skip],
            ignore_errors=opts.ignore_errors,
            group_name=opts.nodegroup,
            verify_clutter=opts.verify_clutter,
        ),
    )
    if not job.is_done:
        return job.code
    failed = sum(not outcome.success for outcome in outcomes)
    if failed:
        ctx.out(f"{failed} job(s) failed while verifying the cluster.")
    clean = all(all(outcome.result) for outcome in outcomes if outcome.success)
    if failed or not clean:
        return exitcodes.EXIT_FAILURE
    return exitcodes.EXIT_SUCCESS
