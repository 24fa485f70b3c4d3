"""``gnt-cluster monitor``: print what happens in the cluster, until interrupted."""

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from ganeti.base.constants import exitcodes
from ganeti.base.constants.protocols.events import Kind, unknown_kind
from ganeti.base.errors import refusal
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output.table import timestamp

#: Seconds for which the master waits for an event before it answers without one.
_WAIT_S: Final = 60
#: For the reader after a restart of the master daemon, or after a long pause.
_LOST: Final = (
    "Events were missed: the master daemon was restarted, or there were many."
)


def run(ctx: CommandContext) -> int:
    """Print one line per event."""
    kinds = _kinds(ctx.opts.type)
    try:
        _follow(ctx, kinds)
    except KeyboardInterrupt:
        return exitcodes.EXIT_SUCCESS


def _kinds(text: str | None) -> list[str]:
    words = [] if text is None else text.split(",")
    for word in words:
        if word not in set(Kind):
            raise refusal(f"--type: {unknown_kind(word)}")
    return words


def _follow(ctx: CommandContext, kinds: list[str]) -> NoReturn:
    position = is_lost = None
    while True:
        answer = ctx.call("WaitForEvents", position, kinds, _WAIT_S)
        position = answer["position"]
        is_begin = is_lost is None
        is_lost = answer["lost"]
        if ctx.opts.json and (is_begin or is_lost):
            place = {"kind": "position", "position": position, "lost": is_lost}
            ctx.out(json.dumps(place))
        elif is_lost:
            ctx.err(_LOST)
        lines = map(json.dumps if ctx.opts.json else _text, answer["events"])
        ctx.out_lines(lines)


def _text(event: Mapping[str, Any]) -> str:
    """Return the line of an event."""
    details = event["details"]
    subject = event["name"]
    if event["object"] not in {"job", "journal"}:
        subject = f"{event['object']} {subject}"
    why = details.get("message") or details.get("reason") or details.get("action") or ""
    if event["kind"] == Kind.JOB:
        why = ", ".join(details.get("summary", ()))
    change = "" if event["kind"] == Kind.JOB_LOG else f" {event['change']}"
    more = f": {why}" if why else ""
    return escape(f"{timestamp(event['time'])} {event['kind']} {subject}{change}{more}")
