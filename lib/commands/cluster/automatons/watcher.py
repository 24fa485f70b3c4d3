"""``watcher``: pause, continue, or show the pause."""

import math
import time

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text.units import parse_duration
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Pause the watcher, end the pause, or show it."""
    verb, *rest = ctx.args
    if ctx.opts.json and verb != "info":
        raise CliError(f"watcher {verb}: --json is an option of watcher info")
    if verb == "pause":
        if not rest:
            raise errors.OpPrereqError(
                "watcher pause: the duration is missing, such as 30m or 2h",
                ecodes.ECODE_INVAL,
            )
        _set(ctx, math.floor(ctx.effects.now()) + parse_duration(rest[0]))
    elif verb == "continue":
        _set(ctx, None)
    elif verb == "info":
        (until,) = ctx.call("QueryConfigValues", ["watcher_pause"])
        if ctx.opts.json:
            from ganeti.commands.cli.output import listing

            listing.print_json(ctx, {"paused_until": until})
            return
        ctx.out(_until(until) or "The watcher is not paused.")
    else:
        raise errors.OpPrereqError(
            f"watcher: wanted pause, continue or info, found {verb!r}",
            ecodes.ECODE_INVAL,
        )


def _until(until: float | None) -> str:
    return f"The watcher is paused until {time.ctime(until)}." if until else ""


def _set(ctx: CommandContext, until: float | None) -> None:
    result = ctx.call("SetWatcherPause", until)
    ctx.out(_until(result) or "The watcher is no longer paused.")
