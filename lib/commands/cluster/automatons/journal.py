"""``journal``: decisions of the programs that act by themselves, and their reasons."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text.control_chars import escape
from ganeti.base.text.units import parse_duration
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.output.text import timestamp

#: Seconds between two questions of a command that follows.
_PAUSE_S: Final = 1.0
_FORMS: Final = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")

Entry = Mapping[str, Any]


def run(ctx: CommandContext) -> None:
    """Print the entries of the journal, the oldest first; then follow it if wanted."""
    selection = _selection(ctx)
    entries = ctx.call("QueryJournal", selection)
    if not ctx.opts.follow:
        if ctx.opts.json:
            listing.print_json(ctx, entries)
        elif entries:
            _show(ctx, entries)
        else:
            # Perhaps a name is misspelt; the journal has nodes that are gone, too.
            ctx.err("The journal has no such entries.")
        return
    while True:
        if ctx.opts.json:
            ctx.out_lines(map(json.dumps, entries))
        else:
            _show(ctx, entries)
        if entries:
            changed = max(entry["mtime"] for entry in entries)
            selection = selection | {"changed_after": changed}
        ctx.effects.sleep(_PAUSE_S)
        entries = ctx.call("QueryJournal", selection)


def _selection(ctx: CommandContext) -> dict[str, Any]:
    opts = ctx.opts
    wanted = {name: getattr(opts, name) for name in ("node", "instance", "automaton")}
    wanted |= {"id": opts.id, "job": opts.job}
    if opts.since is not None:
        wanted["since"] = parse_since(opts.since, ctx.effects.now())
    return {name: value for name, value in wanted.items() if value is not None}


def parse_since(text: str, now: float) -> float:
    """Return the beginning of a time: a duration before now, or a local time.

    Raises:
        OpPrereqError: it is neither.
    """
    for form in _FORMS:
        try:
            return time.mktime(time.strptime(text.replace("T", " "), form))
        except (ValueError, OverflowError):
            continue
    try:
        return now - parse_duration(text)
    except errors.OpPrereqError as err:
        raise errors.OpPrereqError(
            "--since: wanted a duration such as 30m, 2h or 1d, or a local time such as"
            f" '2026-03-01 22:15', found {text!r}",
            ecodes.ECODE_INVAL,
        ) from err


def _show(ctx: CommandContext, entries: list[Entry]) -> None:
    ctx.out_lines(escape(line) for entry in entries for line in _lines(entry))


def _lines(entry: Entry) -> Iterator[str]:
    """Yield the lines of an entry."""
    where = f" group {entry['scope']}" if entry["scope"] else ""
    head = f"{timestamp(entry['ctime'])} {entry['id']} {entry['automaton']}{where}"
    if entry["count"] > 1:
        head += f", {entry['count']} rounds until {timestamp(entry['last'])}"
    if not entry["items"] and not entry["results"]:
        head += ": nothing to do"
    yield head
    for item in entry["items"]:
        jobs = "".join(f" (job {job})" for job in item["jobs"])
        why = f": {item['reason']}" if item["reason"] else ""
        yield (
            f"  {item['kind']} {item['name']}: {item['decision']}:"
            f" {item['action']}{why}{jobs}"
        )
    for end in entry["results"]:
        why = f": {end['error']}" if end["error"] else ""
        yield f"  job {end['job']}: {end['status']}{why}"
    if entry["omitted"]:
        yield f"  and {entry['omitted']} more"
