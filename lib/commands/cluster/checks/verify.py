"""``verify``: check the configuration and every node group."""

import re
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import error_text, listing
from ganeti.commands.cli.waiting import executor, jobs, submission

#: A finding in the form for programs; the name of the cluster is ``None``.
_FINDING: Final = re.compile(
    r"\s*- (ERROR|WARNING):(\w+):(\w+):([^:]*):(.*)", re.DOTALL
)
_NOTICE: Final = re.compile(r"\s*- NOTICE: (.*)", re.DOTALL)


def run(ctx: CommandContext) -> int:
    """Verify the cluster; fail if a check reports an error."""
    operation = _operation(ctx)
    if ctx.opts.json:
        return _run_json(ctx, operation)
    job, outcomes = executor.run_with_jobs(ctx, operation)
    if not job.is_done:
        return job.code
    failed = sum(not outcome.success for outcome in outcomes)
    if failed:
        ctx.out(f"{failed} job(s) failed while verifying the cluster.")
    clean = all(all(outcome.result) for outcome in outcomes if outcome.success)
    if failed or not clean:
        return exitcodes.EXIT_FAILURE
    return exitcodes.EXIT_SUCCESS


def _operation(ctx: CommandContext) -> jobs.Op:
    opts = ctx.opts
    skipped = {
        "nplusone_mem": opts.skip_nplusone_mem,
        "hvparam_assessment": opts.skip_hvparam_assessment,
    }
    return jobs.op(
        "OP_CLUSTER_VERIFY",
        verbose=opts.verbose,
        error_codes=opts.error_codes or opts.json,
        debug_simulate_errors=opts.simulate_errors,
        skip_checks=[name for name, skip in skipped.items() if skip],
        ignore_errors=opts.ignore_errors,
        group_name=opts.nodegroup,
        verify_clutter=opts.verify_clutter,
    )


def _run_json(ctx: CommandContext, operation: jobs.Op) -> int:
    """Verify the cluster and print the findings as one JSON document."""
    job = submission.submit_or_run(ctx, operation)
    if not job.is_done:
        return job.code
    document: dict[str, Any] = {"success": True, "findings": [], "notices": []}
    document["failed_jobs"] = []
    for is_submitted, value in job.result["jobs"]:
        error = _follow(ctx, value, document) if is_submitted else str(value)
        if error:
            failure = {"id": value if is_submitted else None, "error": error}
            document["failed_jobs"].append(failure)
            document["success"] = False
    listing.print_json(ctx, document)
    return exitcodes.EXIT_SUCCESS if document["success"] else exitcodes.EXIT_FAILURE


def _follow(ctx: CommandContext, job_id: int, document: dict[str, Any]) -> str:
    """Add what a job reports to the document; return its error, empty for none."""

    def note(entry: list[Any]) -> None:
        text = str(entry[3])
        if match := _FINDING.fullmatch(text):
            severity, code, kind, name, finding = match.groups()
            row = {"type": severity, "code": code, "kind": kind}
            row |= {"name": None if name == "None" else name, "text": finding}
            document["findings"].append(row)
        elif match := _NOTICE.fullmatch(text):
            document["notices"].append(match[1])

    try:
        if not all(jobs.wait(ctx, job_id, note)):
            document["success"] = False
    except errors.LuxiError:
        raise  # the connection broke
    except errors.GenericError as err:
        return error_text.describe(err)[0]
    return ""
