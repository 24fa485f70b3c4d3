"""``getmaster``: the master's name, from this node's ssconf files alone.

Scripts call it often, so it loads nothing that other commands need.
"""

from ganeti.commands.cli import local
from ganeti.commands.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Print the master node."""
    master = local.master_node(ctx.paths)
    if ctx.opts.json:
        from ganeti.commands.cli.output import listing

        listing.print_json(ctx, {"master_node": master})
        return
    ctx.out(master)
