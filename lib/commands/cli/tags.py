"""The tag commands, the same for every kind of object."""

from ganeti.base import errors
from ganeti.base.errors import refusal
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import operation


def _target(ctx: CommandContext) -> tuple[str, str | None, list[str]]:
    """Return kind and name of the object, and the other arguments."""
    kind = ctx.program.tag_kind
    if kind is None:
        raise errors.ProgrammerError(f"{ctx.program.name} has no tags")
    if kind == "cluster":
        return kind, None, ctx.args
    return kind, ctx.args[0], ctx.args[1:]


def list_tags(ctx: CommandContext) -> None:
    """Print the tags of an object, one per line."""
    kind, name, _ = _target(ctx)
    tags = sorted(ctx.call("QueryTags", kind, name or ""))
    if ctx.opts.json:
        listing.print_json(ctx, tags)
        return
    for tag in tags:
        ctx.out(tag)


def _given_tags(ctx: CommandContext, tags: list[str]) -> list[str]:
    given = list(tags)
    source = ctx.opts.tags_source
    if source == "-":
        given += [line.strip() for line in ctx.effects.stdin]
    elif source is not None:
        try:
            with open(source, encoding="utf-8") as stream:
                given += [line.strip() for line in stream]
        except (OSError, UnicodeDecodeError) as err:
            reason = getattr(err, "strerror", None) or "is not text"
            raise refusal(f"cannot read tags from {source}: {reason}") from err
    given = [tag for tag in given if tag]
    if not given:
        raise refusal("no tags given")
    return given


def change_tags(ctx: CommandContext) -> int:
    """Add tags to an object, or remove them from it."""
    kind, _, words = _target(ctx)
    return operation.run(ctx, kind=kind, tags=_given_tags(ctx, words))
