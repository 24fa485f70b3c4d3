"""Commands of ``gnt-cluster`` that check: verify and verify-disks."""

import re
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.text import nicesort
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import error_text, listing
from ganeti.commands.cli.waiting import executor, jobs, operation, plans, submission

#: A finding in the form for programs; the name of the cluster is ``None``.
_FINDING: Final = re.compile(
    r"\s*- (ERROR|WARNING):(\w+):(\w+):([^:]*):(.*)", re.DOTALL
)
_NOTICE: Final = re.compile(r"\s*- NOTICE: (.*)", re.DOTALL)


def run(ctx: CommandContext) -> int:
    """Verify the cluster; fail if a check reports an error."""
    request = _request(ctx)
    if ctx.opts.json:
        return _run_json(ctx, request)
    job, outcomes = executor.run_with_jobs(ctx, request)
    if not job.is_done:
        return job.code
    failed = sum(not outcome.success for outcome in outcomes)
    if failed:
        ctx.out(f"{failed} job(s) failed while verifying the cluster.")
    clean = all(all(outcome.result) for outcome in outcomes if outcome.success)
    if failed or not clean:
        return exitcodes.EXIT_FAILURE
    return exitcodes.EXIT_SUCCESS


def _request(ctx: CommandContext) -> jobs.Op:
    opts = ctx.opts
    skipped = {
        "nplusone_mem": opts.skip_nplusone_mem,
        "hvparam_assessment": opts.skip_hvparam_assessment,
    }
    return operation.fill(
        ctx,
        error_codes=opts.error_codes or opts.json,
        skip_checks=[name for name, skip in skipped.items() if skip],
        ignore_errors=opts.ignore_errors,
    )


def _run_json(ctx: CommandContext, request: jobs.Op) -> int:
    """Verify the cluster and print the findings as one JSON document."""
    job = submission.submit_or_run(ctx, request)
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


#: Error texts of nodes can be long; the end is the most useful part.
_ERROR_TAIL: Final = 400


def verify_disks(ctx: CommandContext) -> int:
    """Check the disks of all groups; activate the inactive ones."""
    _, outcomes = executor.run_with_jobs(ctx, operation.fill(ctx))
    if plans.wanted(ctx):
        return _plan(ctx, outcomes)
    code = exitcodes.EXIT_SUCCESS
    for outcome in outcomes:
        if not outcome.success:
            code = exitcodes.EXIT_FAILURE
            continue
        bad_nodes, inactive, missing = outcome.result[0]
        code |= _report_nodes(ctx, bad_nodes)
        code |= _activate(ctx, inactive)
        code |= _report_missing(ctx, missing, bad_nodes)
        if not (inactive or missing):
            ctx.out("No disks need to be activated.")
    return code


def _plan(ctx: CommandContext, outcomes: list[executor.JobOutcome]) -> int:
    """Print the disks that would be activated; this changes nothing."""
    names = [
        name
        for outcome in outcomes
        if outcome.success
        for name in nicesort.nice_names(outcome.result[0][1])
    ]
    if not names and not ctx.option("json"):
        ctx.out("No disks need to be activated.")
    code = plans.show(ctx, [[_activation(name)] for name in names])
    is_complete = all(outcome.success for outcome in outcomes)
    return code if is_complete else exitcodes.EXIT_FAILURE


def _activation(name: str) -> jobs.Op:
    return jobs.op("OP_INSTANCE_ACTIVATE_DISKS", instance_name=name)


def _report_nodes(ctx: CommandContext, bad_nodes: dict[str, str]) -> int:
    for node, text in sorted(bad_nodes.items()):
        ctx.out(f"Error gathering data on node {node}: {text[-_ERROR_TAIL:]}")
        ctx.out("You need to fix these nodes first before fixing instances")
    return exitcodes.EXIT_FAILURE if bad_nodes else exitcodes.EXIT_SUCCESS


def _activate(ctx: CommandContext, names: list[str]) -> int:
    code = exitcodes.EXIT_SUCCESS
    for name in nicesort.nice_names(names):
        ctx.out(f"Activating disks for instance '{name}'")
        try:
            jobs.run(ctx, _activation(name))
        except errors.LuxiError:
            raise
        except errors.GenericError as err:
            text, _ = error_text.describe(err)
            ctx.err(f"Error activating disks for instance {name}: {text}")
            code = exitcodes.EXIT_FAILURE
    return code


def _report_missing(
    ctx: CommandContext, missing: dict[str, list[Any]], bad_nodes: dict[str, str]
) -> int:
    for name, volumes in sorted(missing.items()):
        everything = all(node in bad_nodes for node, _ in volumes)
        ctx.out(f"Instance {name} has missing logical volumes:")
        for node, volume in volumes:
            ctx.out(
                f"\tbroken node {node} /dev/{volume}"
                if node in bad_nodes
                else f"\t{node} /dev/{volume}"
            )
        if everything:
            ctx.out("\tall of them are on broken nodes; fix these first")
    if not missing:
        return exitcodes.EXIT_SUCCESS
    ctx.out(
        "You need to replace or recreate disks for all the above instances if this"
        " message persists after fixing broken nodes."
    )
    return exitcodes.EXIT_FAILURE
