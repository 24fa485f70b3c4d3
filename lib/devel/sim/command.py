"""``gnt-cluster simulate``: what automation would do on a copy of the cluster."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.commands.cli import app
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cluster.table import PROGRAM as CLUSTER
from ganeti.devel.sim import description as descriptions
from ganeti.devel.sim import events as event_forms
from ganeti.devel.sim import live, policy
from ganeti.devel.sim.description import ClusterDescription
from ganeti.devel.sim.events import Event
from ganeti.devel.sim.live import LiveCluster
from ganeti.devel.sim.policy import Difference
from ganeti.devel.sim.simulation import InstanceEnd, Report, Simulation
from ganeti.devel.sim.timeline import span

#: Seconds before progress is shown.
_QUIET_S: Final = 2.0
#: Most bytes of a file with a policy.
MAX_FILE: Final = 1 << 20
#: The only command of this program, with the row of the one that starts it.
PROGRAM: Final = CLUSTER._replace(
    commands=tuple(
        command._replace(run="devel.sim.command:run")
        for command in CLUSTER.commands
        if command.name == "simulate"
    )
)


class _Request(NamedTuple):
    """The simulation that is wanted: from this cluster on, for some seconds."""

    description: ClusterDescription
    events: Sequence[Event]
    seconds: float


def main() -> int:
    """Run the program with the words of ``gnt-cluster``; return its exit code."""
    # The timeline has what matters.
    logging.disable(logging.CRITICAL)
    return app.main(PROGRAM)


def run(ctx: CommandContext) -> int:
    """Print what would happen; return the exit code."""
    opts = ctx.opts
    seconds = _horizon(opts.horizon)
    events = [_event(text, seconds) for text in opts.events or ()]
    settings = [each for text in opts.policy or () for each in _settings(text)]
    cluster = _read(ctx)
    events = [event_forms.with_names(event, cluster.names) for event in events]
    event_forms.check_names(events, descriptions.names(cluster.description))
    changed = policy.apply(cluster.description, settings, cluster.names)
    events.sort(key=lambda event: event.at_s)
    request = _Request(changed, events, seconds)
    report = _play(ctx, request)
    differences = policy.differences(cluster.description, changed)
    if opts.json:
        document = _document(cluster, request, differences, report)
        listing.print_json(ctx, {**document, "seed": opts.seed})
    else:
        for note in cluster.notes:
            ctx.err(f"Note: {note}")
        ctx.out_lines(_lines(cluster, request, differences, report))
    return exitcodes.EXIT_FAILURE if report.problems else exitcodes.EXIT_SUCCESS


def _refuse(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(text, ecodes.ECODE_INVAL)


# Options
def _horizon(text: str) -> float:
    try:
        seconds = event_forms.duration(text)
    except errors.OpPrereqError:
        seconds = 0.0
    if seconds < 1:
        raise _refuse(
            f"--horizon: wanted a time from 1s to 30d, such as 90m, found {text!r}"
        )
    return seconds


def _event(text: str, seconds: float) -> Event:
    event = event_forms.parse_event(text, has_time=False)
    if event.at_s >= seconds:
        raise _refuse(
            f"event {text!r}: wanted a time before the horizon of {span(seconds)},"
            f" found {span(event.at_s)}"
        )
    return event


def _settings(text: str) -> list[policy.Setting]:
    """Return the settings of an option: those in it, or those of the file it names."""
    if "=" in text:
        return policy.parse(text)
    try:
        with open(text, "rb") as stream:
            data = stream.read(MAX_FILE + 1)
    except OSError as err:
        raise _refuse(
            f"--policy: wanted KEY=VALUE or a file, found {text!r}: {err.strerror}"
        ) from err
    if len(data) > MAX_FILE:
        raise _refuse(f"{text}: wanted at most {MAX_FILE} bytes, found more")
    try:
        return policy.parse_file(data.decode(), text)
    except UnicodeDecodeError as err:
        raise _refuse(f"{text}: wanted text in UTF-8, found other bytes") from err


# The cluster
def _read(ctx: CommandContext) -> LiveCluster:
    rows = {
        kind: listing.query_objects(ctx, kind, list(fields))
        for kind, fields in live.FIELDS.items()
    }
    return live.read(
        live.Answers(
            groups=rows["group"],
            nodes=rows["node"],
            instances=rows["instance"],
            info=ctx.call("QueryClusterInfo"),
            automation=ctx.call("QueryAutomation"),
            copies=ctx.call("QueryCopies"),
        )
    )


def _play(ctx: CommandContext, request: _Request) -> Report:
    begun = ctx.effects.monotonic()

    def show(at_s: float) -> None:
        if ctx.shows_progress and ctx.effects.monotonic() - begun > _QUIET_S:
            ctx.progress(f"simulated {span(at_s)} of {span(request.seconds)}")

    try:
        simulation = Simulation(
            request.description, request.events, begin=ctx.effects.now()
        )
        return simulation.run(request.seconds, show)
    finally:
        ctx.progress("")


# Output
def _document(
    cluster: LiveCluster,
    request: _Request,
    differences: Sequence[Difference],
    report: Report,
) -> dict[str, Any]:
    return {
        "cluster": cluster.name,
        "seconds": request.seconds,
        "events": [{"at": each.at_s, "event": str(each)} for each in request.events],
        "policy": msgspec.to_builtins(differences),
        "timeline": [
            {"at": line.at_s, "kind": line.kind, "name": line.name, "text": line.text}
            for line in report.lines
        ],
        "instances": [
            {
                "name": end.name,
                "before": list(end.before),
                "after": list(end.after),
                "primary": end.primary,
                "at": end.at_s,
                "reason": end.reason,
            }
            for end in report.instances
        ],
        "instance_count": report.count,
        "broken_rules": list(report.problems),
        "notes": list(cluster.notes),
    }


def _lines(
    cluster: LiveCluster,
    request: _Request,
    differences: Sequence[Difference],
    report: Report,
) -> Iterator[str]:
    """Yield the timeline and the summary."""
    nodes = len(cluster.description.nodes)
    yield (
        f"Simulation of {cluster.name}: {_count(nodes, 'node')},"
        f" {_count(report.count, 'instance')}, {span(request.seconds)};"
        " the cluster itself is not changed"
    )
    for each in differences:
        yield f"Policy: {each.key}: {each.after} instead of {each.before}"
    yield ""
    yield from map(str, report.lines)
    if not report.lines:
        yield "Nothing happens."
    yield ""
    yield "Summary:"
    yield from _summary(report)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _summary(report: Report) -> Iterator[str]:
    down = [end for end in report.instances if end.reason]
    moved = [end for end in report.instances if not end.reason and end.after]
    stopped = [end for end in report.instances if not end.reason and not end.after]
    for ends, what in (
        (moved, "run elsewhere, or again"),
        (stopped, "were stopped"),
        (down, "stay down although they should run"),
    ):
        if ends:
            yield f"  {len(ends)} of {_count(report.count, 'instance')} {what}:"
            yield from map(_end, ends)
    if not report.instances:
        total = _count(report.count, "instance")
        yield f"  All of {total} run, or are stopped, as before."
    if report.problems:
        yield "  Rules that automation broke:"
        yield from (f"    {text}" for text in report.problems)


def _end(end: InstanceEnd) -> str:
    before, after = (", ".join(each) or "nowhere" for each in (end.before, end.after))
    when = "" if end.at_s is None else f", {span(end.at_s)}"
    why = f": {end.reason}" if end.reason else ""
    return f"    {end.name}: {before} -> {after}{when}{why}"
