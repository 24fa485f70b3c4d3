"""``version`` and ``master-ping``."""

from typing import Final

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing

_LINES: Final = (
    ("Software version", "software_version"),
    ("Internode protocol", "protocol_version"),
    ("Configuration format", "config_version"),
    ("OS api version", "os_api_version"),
    ("Export interface", "export_version"),
    ("VCS version", "vcs_version"),
)


def run(ctx: CommandContext) -> None:
    """Print the versions of the master."""
    info = ctx.call("QueryClusterInfo")
    if ctx.opts.json:
        listing.print_json(ctx, {key: info[key] for _, key in _LINES})
        return
    for title, key in _LINES:
        ctx.out(f"{title}: {info[key]}")


def ping(ctx: CommandContext) -> None:
    """Fail unless the master answers."""
    ctx.call("QueryClusterInfo")
