"""``queue``: drain, undrain or show the drain flag."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Set, clear or show the drain flag of the job queue."""
    verb = ctx.args[0]
    if ctx.opts.json and verb != "info":
        raise CliError(f"queue {verb}: --json is an option of queue info")
    if verb in ("drain", "undrain"):
        ctx.call("SetDrainFlag", verb == "drain")
    elif verb == "info":
        (flag,) = ctx.call("QueryConfigValues", ["drain_flag"])
        if ctx.opts.json:
            from ganeti.commands.cli.output import listing

            listing.print_json(ctx, {"drained": bool(flag)})
            return
        ctx.out(f"The drain flag is {'set' if flag else 'unset'}")
    else:
        raise errors.OpPrereqError(
            f"queue: wanted drain, undrain or info, found {verb!r}", ecodes.ECODE_INVAL
        )
