"""Commands on job filter rules."""

from typing import Any, Final
from uuid import UUID

from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.commands.cli import filters
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing

FIELDS: Final = [
    "uuid",
    "watermark",
    "priority",
    "predicates",
    "action",
    "reason_trail",
    "problem",
]
_TITLES: Final = ("Watermark", "Priority", "Predicates", "Action", "Reason trail")


def _put(ctx: CommandContext, uuid: str | None) -> None:
    opts = ctx.opts
    if uuid is not None:
        # The master answers other texts with a protocol error.
        try:
            UUID(uuid)
        except ValueError as err:
            raise refusal(f"job filter: wanted a UUID, found {uuid!r}") from err
    if not isinstance(opts.predicates, list):
        raise refusal(
            "job filter: wanted predicates as a list of [kind, filter], found"
            f" {opts.predicates!r}"
        )
    now = int(ctx.effects.now() * 1_000_000_000)
    reason = [["gnt:user", opts.reason, now]] if opts.reason else []
    reason.append([f"gnt:client:{ctx.program.name}", ctx.word, now])
    result = ctx.call(
        "ReplaceFilter", uuid, opts.priority, opts.predicates, opts.action, reason
    )
    ctx.out(result)


def add(ctx: CommandContext) -> None:
    """Create a rule."""
    _put(ctx, None)


def replace(ctx: CommandContext) -> None:
    """Replace a rule, or create it."""
    _put(ctx, ctx.args[0])


def require(ctx: CommandContext, uuids: list[str]) -> None:
    """Refuse uuids of rules that do not exist.

    Raises:
        OpPrereqError: a rule does not exist; the text names the first one.
    """
    if uuids:
        _check_found(uuids, ctx.call("QueryFilters", uuids, ["uuid"]))


def _check_found(uuids: list[str], rows: list[list[Any]]) -> None:
    present = {row[0] for row in rows}
    for uuid in uuids:
        if uuid not in present:
            raise refusal(f"there is no job filter {uuid}", ecodes.ECODE_NOENT)


def warn(ctx: CommandContext) -> None:
    """Name the rules that the master skips."""
    for uuid, problem in ctx.call("QueryFilters", None, ["uuid", "problem"]):
        if problem is not None:
            ctx.err(f"Warning: job filter {uuid} is skipped: {problem}")


def delete(ctx: CommandContext) -> None:
    """Delete a rule."""
    require(ctx, ctx.args)
    ctx.call("DeleteFilter", ctx.args[0])


def info(ctx: CommandContext) -> None:
    """Show rules."""
    rows = ctx.call("QueryFilters", ctx.args or None, FIELDS)
    _check_found(ctx.args, rows)
    if ctx.opts.json:
        objects = [dict(zip(FIELDS, row, strict=True)) for row in rows]
        listing.print_json(ctx, objects)
        return
    for uuid, *values, problem in rows:
        ctx.out(f"UUID: {uuid}")
        if problem is not None:
            ctx.out(f"  Skipped: {problem}")
        for title, value in zip(_TITLES, values, strict=True):
            ctx.out(f"  {title}: {value}")


def list_objects(ctx: CommandContext) -> int:
    """List job filter rules."""
    words = ctx.args
    is_filter = len(words) == 1 and filters.looks_like_filter(words[0])
    if not is_filter:
        # A query refuses an unknown name, but compares a uuid with any value.
        require(ctx, [word for word in words if not filters.is_glob(word)])
    warn(ctx)
    return listing.list_objects(ctx, listing.Listing("filter", name_field="uuid"))
