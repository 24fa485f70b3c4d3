"""``getmaster``: the master's name, from this node's ssconf files alone."""

from ganeti.cli import local
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Print the master node."""
    ctx.out(local.master_node(ctx.paths))
