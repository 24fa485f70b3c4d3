"""``evacuate``: move instances away from a node."""

from ganeti import errors
from ganeti.cli import executor, explain, jobs, listing, prompts
from ganeti.cli.context import CommandContext
from ganeti.constants import ecodes, exitcodes


def _mode(ctx: CommandContext) -> str:
    opts = ctx.opts
    if opts.primary_only and (opts.secondary_only or opts.dst_node):
        raise errors.OpPrereqError(
            "--primary-only excludes --secondary-only and --new-secondary",
            ecodes.ECODE_INVAL,
        )
    if opts.dst_node and not opts.secondary_only:
        ctx.err(
            "Note: a new secondary was given, so only secondary instances are evacuated"
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
        raise errors.OpPrereqError(
            f"node {node}: has {len(primary)} primary and {len(secondary)} secondary"
            " instances, which need separate requests: one with --primary-only and one"
            " with --secondary-only",
            ecodes.ECODE_INVAL,
        )
    return "primary-only" if primary else "secondary-only"


def run(ctx: CommandContext) -> int:
    """Evacuate a node."""
    opts, node = ctx.opts, ctx.args[0]
    if opts.dst_node and opts.iallocator:
        raise errors.OpPrereqError(
            "--iallocator and --new-secondary exclude each other", ecodes.ECODE_INVAL
        )
    mode = _mode(ctx)
    fields = {
        "primary-only": ["pinst_list"],
        "secondary-only": ["sinst_list"],
        "all": ["pinst_list", "sinst_list"],
    }[mode]
    (row,) = listing.named(ctx, "node", fields, [node])
    if not any(row.values()):
        ctx.err(f"No instances to evacuate on node {node} (mode {mode})")
        return exitcodes.EXIT_SUCCESS
    if mode == "all":
        mode = _one_kind(node, row)
    question = f"Evacuate instances from node {node} (mode {mode})?"
    is_asked = not (opts.force or opts.dry_run)
    if is_asked and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_CONFIRMATION
    operation = jobs.op(
        "OP_NODE_EVACUATE",
        node_name=node,
        mode=mode,
        remote_node=opts.dst_node,
        iallocator=opts.iallocator,
        early_release=opts.early_release,
        ignore_soft_errors=opts.ignore_soft_errors or None,
    )
    if opts.explain:
        return explain.run(ctx, operation)
    return executor.run_and_report(
        ctx,
        operation,
        good="All instances evacuated successfully.",
        bad="There were {} errors during the evacuation.",
    )
