"""``locks``: holders and waiters of locks."""

import threading
from typing import Any

from ganeti.base.clock import SystemClock
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing


def _or_dash(value: Any) -> str:
    return "-" if not value else str(value)


def _owner(value: Any) -> str:
    return ",".join(map(str, value)) if value else "-"


def _held(value: Any) -> str:
    return ",".join(f"{seconds:.1f}s" for seconds in value) if value else "-"


def _pending(value: Any) -> str:
    if not value:
        return "-"
    return ", ".join(f"{mode}:{','.join(map(str, jobs))}" for mode, jobs in value)


_LISTING = listing.Listing(
    "lock", {"mode": _or_dash, "owner": _owner, "held": _held, "pending": _pending}
)


def run(ctx: CommandContext) -> int:
    """List locks, once or periodically."""
    fields = listing.selected_fields(ctx.opts.output, ctx.command.fields)
    never, clock = threading.Event(), SystemClock()
    while True:
        code = listing.show(ctx, _LISTING, fields, None)
        if not ctx.opts.interval:
            return code
        ctx.out()
        clock.wait(never, ctx.opts.interval)
