"""Commands of ``gnt-node`` that empty nodes: evacuate, failover, migrate."""

from typing import Final

from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.base.text import nicesort
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.param_options import migration_mode
from ganeti.commands.cli.waiting import executor, jobs, operation
from ganeti.commands.cli.waiting.executor import JobExecutor


def _mode(ctx: CommandContext) -> str:
    opts = ctx.opts
    if opts.primary_only and opts.secondary_only:
        raise refusal("--primary-only and --secondary-only exclude each other")
    if opts.dst_node and not opts.secondary_only:
        ctx.err(
            "New secondary node given (disabling iallocator), hence evacuating"
            " secondary instances only."
        )
    if opts.secondary_only or opts.dst_node:
        return "secondary-only"
    return "primary-only" if opts.primary_only else "all"


def _one_kind(node: str, row: dict[str, list[str]]) -> str:
    """Return the mode for a node that has instances of one kind only.

    Raises:
        OpPrereqError: the node has both kinds, which need separate requests.
    """
    primary, secondary = row["pinst_list"], row["sinst_list"]
    if primary and secondary:
        raise refusal(
            f"node {node}: has {len(primary)} primary and {len(secondary)} secondary"
            " instances, which need separate requests: one with --primary-only and one"
            " with --secondary-only"
        )
    return "primary-only" if primary else "secondary-only"


_EVACUATION_FIELDS: Final = {
    "primary-only": ["pinst_list"],
    "secondary-only": ["sinst_list"],
    "all": ["pinst_list", "sinst_list"],
}


def _modes(ctx: CommandContext, mode: str) -> dict[str, str]:
    """Return node -> mode for the nodes that have instances to move.

    Raises:
        OpPrereqError: a node is unknown, or has instances of both kinds.
    """
    modes, empty = {}, []
    for node in dict.fromkeys(ctx.args):
        (row,) = listing.named(ctx, "node", _EVACUATION_FIELDS[mode], [node])
        if not any(row.values()):
            empty.append(node)
            continue
        modes[node] = _one_kind(node, row) if mode == "all" else mode
    if empty:
        ending = "." if modes else ", exiting."
        ctx.err(f"No instances to evacuate on node(s) {', '.join(empty)}{ending}")
    return modes


def evacuate(ctx: CommandContext) -> int:
    """Evacuate nodes, one after another."""
    opts = ctx.opts
    modes = _modes(ctx, _mode(ctx))
    if not modes:
        return exitcodes.EXIT_SUCCESS
    named = ", ".join(f"{node} (mode {mode})" for node, mode in modes.items())
    question = f"Evacuate instances from node {named}?"
    is_asked = not (opts.force or opts.dry_run)
    if is_asked and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_CONFIRMATION
    operations = [_operation(ctx, node, mode) for node, mode in modes.items()]
    if opts.explain:
        from ganeti.commands.cli.output import explain

        return max(explain.run(ctx, one) for one in operations)
    return executor.run_and_report(
        ctx,
        operations,
        good="All instances evacuated successfully.",
        bad="There were {} errors during the evacuation.",
    )


def _operation(ctx: CommandContext, node: str, mode: str) -> jobs.Op:
    opts = ctx.opts
    return operation.fill(
        ctx,
        node_name=node,
        mode=mode,
        # A new secondary node leaves nothing for an allocator to choose.
        iallocator=None if opts.dst_node else opts.iallocator,
        ignore_soft_errors=opts.ignore_soft_errors or None,
    )


def fail_over(ctx: CommandContext) -> int:
    """Fail over the primary instances of a node."""
    opts = ctx.opts
    (node,) = listing.named(ctx, "node", ["name", "pinst_list"], ctx.args)
    instances = nicesort.nice_names(node["pinst_list"])
    if not instances:
        ctx.err(f"No primary instances on node {node['name']}, exiting.")
        return exitcodes.EXIT_SUCCESS
    question = f"Fail over instance(s) {', '.join(instances)}?"
    if not opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_DECLINED
    executor = JobExecutor(ctx)
    for name in instances:
        executor.add(
            name,
            jobs.op(
                "OP_INSTANCE_FAILOVER",
                instance_name=name,
                ignore_consistency=opts.ignore_consistency,
                iallocator=opts.iallocator,
            ),
        )
    if (code := executor.planned()) is not None:
        return code
    failed = sum(not outcome.success for outcome in executor.finish())
    if failed:
        ctx.out(
            f"There were errors during the failover:\n{failed} error(s) out of"
            f" {len(instances)} instance(s)."
        )
        return exitcodes.EXIT_FAILURE
    ctx.out(f"All {len(instances)} instance(s) failed over successfully.")
    return exitcodes.EXIT_SUCCESS


def migrate(ctx: CommandContext) -> int:
    """Migrate the primary instances of a node."""
    (node,) = listing.named(ctx, "node", ["name", "pinst_list"], ctx.args)
    if not node["pinst_list"]:
        ctx.out(f"No primary instances on node {node['name']}, exiting.")
        return exitcodes.EXIT_SUCCESS
    listed = ", ".join(nicesort.nice_names(node["pinst_list"]))
    question = f"Migrate instance(s) {listed} from node {node['name']}?"
    if not ctx.opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_CONFIRMATION
    return operation.run(ctx, node_name=node["name"], mode=migration_mode(ctx))
