"""``search-tags``: find objects by their tags."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import jobs


def run(ctx: CommandContext) -> int:
    """Print path and tag for every tag that matches a regular expression."""
    tags = jobs.run(ctx, jobs.op("OP_TAGS_SEARCH", pattern=ctx.args[0]))
    tags = sorted([path, tag] for path, tag in tags)
    if ctx.opts.json:
        listing.print_json(ctx, [{"path": path, "tag": tag} for path, tag in tags])
    else:
        for path, tag in tags:
            ctx.out(f"{path} {tag}")
    return exitcodes.EXIT_SUCCESS if tags else exitcodes.EXIT_FAILURE
