"""``list``: names of usable operating systems."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table
from ganeti.commands.os.names import usable_names


def run(ctx: CommandContext) -> None:
    """List operating systems with their variants."""
    names = usable_names(ctx, generic=True)
    if ctx.opts.json:
        listing.print_json(ctx, [{"name": name} for name in names])
        return
    text = table.render(
        [table.Column("Name")],
        [names],
        separator=None,
        headers=not ctx.opts.no_headers,
        pad_header=True,
    )
    if text:
        ctx.out(text)
