"""``audit``: the changes of the cluster that this master has recorded."""

import collections
import datetime as dt
import gzip
import json
import os
from collections.abc import Iterator
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.base.text import audit_chain
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli import local
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cluster.automatons.journal import parse_since

Record = dict[str, Any]


def run(ctx: CommandContext) -> int:
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
        raise errors.OpPrereqError(
            f"-n: wanted a number of at least 1, found {count}", ecodes.ECODE_INVAL
        )
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
