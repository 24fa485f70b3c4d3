"""Commands of ``gnt-cluster`` that show records of the past: journal and audit."""

import collections
import datetime as dt
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.base.errors import refusal
from ganeti.base.text import audit_chain
from ganeti.base.text.control_chars import escape
from ganeti.base.text.units import parse_duration
from ganeti.commands.cli import local
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.output.table import timestamp

#: Seconds between two questions of a command that follows.
_PAUSE_S: Final = 1.0
_FORMS: Final = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")

Entry = Mapping[str, Any]


def show_journal(ctx: CommandContext) -> None:
    """Print the entries of the journal, the oldest first; then follow it if wanted."""
    selection = _selection(ctx)
    entries = ctx.call("QueryJournal", selection)
    if not ctx.opts.follow:
        if ctx.opts.json:
            listing.print_json(ctx, entries)
        elif entries:
            _show_rounds(ctx, entries)
        else:
            # Perhaps a name is misspelt; the journal has nodes that are gone, too.
            ctx.err("The journal has no such entries.")
        return
    while True:
        if ctx.opts.json:
            ctx.out_lines(map(json.dumps, entries))
        else:
            _show_rounds(ctx, entries)
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
        raise refusal(
            "--since: wanted a duration such as 30m, 2h or 1d, or a local time such as"
            f" '2026-03-01 22:15', found {text!r}"
        ) from err


def _show_rounds(ctx: CommandContext, entries: list[Entry]) -> None:
    ctx.out_lines(escape(line) for entry in entries for line in _round_lines(entry))


def _round_lines(entry: Entry) -> Iterator[str]:
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


Record = dict[str, Any]


def audit(ctx: CommandContext) -> int:
    """Print the newest changes, or verify that the log is whole."""
    local.master_node(ctx.paths)
    try:
        return _verify(ctx) if ctx.opts.verify else _show(ctx)
    except (OSError, EOFError, ValueError) as err:
        raise errors.OpPrereqError(
            f"{ctx.paths.log_dir}/{audit_chain.LOG_NAME}: cannot be read: {err}",
            ecodes.ECODE_ENVIRON,
        ) from err


def _show(ctx: CommandContext) -> int:
    count, since = ctx.opts.number, None
    if count is not None and count < 1:
        raise refusal(f"-n: wanted a number of at least 1, found {count}")
    if ctx.opts.since is not None:
        start = parse_since(ctx.opts.since, ctx.effects.now())
        since = dt.datetime.fromtimestamp(start, dt.UTC).isoformat(
            timespec="milliseconds"
        )
    newest: collections.deque[Record] = collections.deque(maxlen=count)
    for line in _lines(ctx):
        record = audit_chain.parse(line)
        if record and (since is None or str(record.get("time")) >= since):
            newest.append(record)
    if ctx.opts.json:
        listing.print_json(ctx, list(newest))
    else:
        ctx.out_lines(map(_text, newest))
    return exitcodes.EXIT_SUCCESS


def _verify(ctx: CommandContext) -> int:
    verifier = audit_chain.Verifier(_head(ctx))
    problems = [text for line in _lines(ctx) for text in verifier.check(line)]
    problems += verifier.end()
    first = verifier.first["n"] if verifier.first else 0
    number, digest = verifier.last
    if ctx.opts.json:
        listing.print_json(
            ctx,
            {"first": first, "last": number, "digest": digest, "problems": problems},
        )
    else:
        for problem in problems:
            ctx.out(f"Problem: {problem}")
        ctx.out(f"Lines {first} to {number}; digest of the last one: {digest}")
        if first > 1:
            ctx.out(
                f"Lines 1 to {first - 1} are not here: deleted by the rotation of logs,"
                " or by somebody."
            )
        if not problems:
            ctx.out("The audit log is whole.")
    return exitcodes.EXIT_FAILURE if problems else exitcodes.EXIT_SUCCESS


def _head(ctx: CommandContext) -> tuple[int, str] | None:
    try:
        with open(ctx.paths.data(audit_chain.HEAD_NAME), "rb") as stream:
            return audit_chain.head_of(stream.read(audit_chain.MAX_HEAD))
    except FileNotFoundError:
        return None


def _lines(ctx: CommandContext) -> Iterator[bytes]:
    """Yield the lines of the log and of its rotated files, the oldest first."""
    directory, oldest = ctx.paths.log_dir, []
    for name in os.listdir(directory):
        if name.split("-")[0].startswith(audit_chain.LOG_NAME):
            lines = _lines_of(f"{directory}/{name}")
            first = next((r["n"] for r in map(audit_chain.parse, lines) if r), None)
            # Without any good line, it is what was put in the place of the log.
            oldest.append((float("inf") if first is None else first, name))
    for _first, name in sorted(oldest):
        yield from _lines_of(f"{directory}/{name}")


def _lines_of(path: str) -> Iterator[bytes]:
    import gzip

    limit = 2 * audit_chain.MAX_LINE
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as stream:
        while line := stream.readline(limit):
            if line.strip():
                yield line.rstrip(b"\n")


def _text(record: Record) -> str:
    """Return one line about a change."""
    who = record.get("who") or {}
    via = who.get("via")
    person = who.get("user") or who.get("uid", "")
    if "claimed_sudo_user" in who:
        person = f"{person} (claims to be {who['claimed_sudo_user']} by sudo)"
    if who.get("address"):
        person = f"{person} from {who['address']}"
    parts = [str(record["n"]), str(record.get("time")), str(record.get("event"))]
    if record.get("job") is not None:
        parts.append(f"job {record['job']}")
    if via:
        parts.append(f"by {person} ({via})" if person != "" else f"by {via}")
    rest = {
        name: record[name]
        for name in ("method", "args", "ops", "master", "term", "result", "error")
        if name in record
    }
    return escape(" ".join([*parts, json.dumps(rest)]))
