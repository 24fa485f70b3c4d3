"""``migrate``: migrate all primary instances of a node."""

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.base.text import nicesort
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.param_options import migration_mode
from ganeti.commands.cli.waiting import executor, jobs


def run(ctx: CommandContext) -> int:
    """Migrate the primary instances of a node."""
    opts = ctx.opts
    if opts.dst_node and opts.iallocator:
        raise errors.OpPrereqError(
            "--iallocator and --target-node exclude each other", ecodes.ECODE_INVAL
        )
    (node,) = listing.named(ctx, "node", ["name", "pinst_list"], ctx.args)
    if not node["pinst_list"]:
        ctx.out(f"No primary instances on node {node['name']}, exiting.")
        return exitcodes.EXIT_SUCCESS
    listed = ", ".join(nicesort.nice_names(node["pinst_list"]))
    question = f"Migrate instance(s) {listed} from node {node['name']}?"
    if not opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_CONFIRMATION
    operation = jobs.op(
        "OP_NODE_MIGRATE",
        node_name=node["name"],
        mode=migration_mode(ctx),
        target_node=opts.dst_node,
        iallocator=opts.iallocator,
        allow_runtime_changes=opts.allow_runtime_chgs,
        ignore_ipolicy=opts.ignore_ipolicy,
    )
    return executor.run_and_report(
        ctx,
        operation,
        good="All instances migrated successfully.",
        bad="There were {} errors during the node migration.",
    )
