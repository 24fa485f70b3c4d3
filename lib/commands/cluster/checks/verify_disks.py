"""``verify-disks``: activate disks that should be active."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.text import nicesort
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import error_text
from ganeti.commands.cli.waiting import executor, jobs, plans

#: Error texts of nodes can be long; the end is the most useful part.
_ERROR_TAIL: Final = 400


def run(ctx: CommandContext) -> int:
    """Check the disks of all groups; activate the inactive ones."""
    _, outcomes = executor.run_with_jobs(
        ctx,
        jobs.op(
            "OP_CLUSTER_VERIFY_DISKS",
            group_name=ctx.opts.nodegroup,
            is_strict=not ctx.opts.no_strict,
        ),
    )
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
