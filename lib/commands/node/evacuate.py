"""``evacuate``: move instances away from nodes."""

from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import explain, listing
from ganeti.commands.cli.waiting import executor, jobs


def _mode(ctx: CommandContext) -> str:
    opts = ctx.opts
    if opts.primary_only and opts.secondary_only:
        raise errors.OpPrereqError(
            "--primary-only and --secondary-only exclude each other",
            ecodes.ECODE_INVAL,
        )
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
        raise errors.OpPrereqError(
            f"node {node}: has {len(primary)} primary and {len(secondary)} secondary"
            " instances, which need separate requests: one with --primary-only and one"
            " with --secondary-only",
            ecodes.ECODE_INVAL,
        )
    return "primary-only" if primary else "secondary-only"


_FIELDS: Final = {
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
        (row,) = listing.named(ctx, "node", _FIELDS[mode], [node])
        if not any(row.values()):
            empty.append(node)
            continue
        modes[node] = _one_kind(node, row) if mode == "all" else mode
    if empty:
        ending = "." if modes else ", exiting."
        ctx.err(f"No instances to evacuate on node(s) {', '.join(empty)}{ending}")
    return modes


def run(ctx: CommandContext) -> int:
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
        return max(explain.run(ctx, operation) for operation in operations)
    return executor.run_all_and_report(
        ctx,
        operations,
        good="All instances evacuated successfully.",
        bad="There were {} errors during the evacuation.",
    )


def _operation(ctx: CommandContext, node: str, mode: str) -> jobs.Op:
    opts = ctx.opts
    return jobs.op(
        "OP_NODE_EVACUATE",
        node_name=node,
        mode=mode,
        remote_node=opts.dst_node,
        # A new secondary node leaves nothing for an allocator to choose.
        iallocator=None if opts.dst_node else opts.iallocator,
        early_release=opts.early_release,
        ignore_soft_errors=opts.ignore_soft_errors or None,
    )
