"""``status``: the state of the cluster on one screen, with a verdict."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.text.control_chars import escape
from ganeti.base.text.units import format_size
from ganeti.commands.cli import local
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import colours, listing
from ganeti.commands.cli.output.colours import Painter
from ganeti.commands.cli.output.table import plural, timestamp

#: Seconds to reach the master daemon, and to get its answer, which may wait 2 seconds
#: for nodes. Monitoring must learn soon that there is no answer.
_CONNECT_S: Final = 1.0
_ANSWER_S: Final = 3.5
#: Width of the screen, and of the names of its lines.
_WIDTH: Final = 80
_LABEL: Final = 14
#: Jobs and findings that are shown; all are in the JSON document.
_SHOWN_JOBS: Final = 3
_SHOWN: Final = 5
_DAY_S: Final = 86400

Document = Mapping[str, Any]


def run(ctx: CommandContext) -> int:
    """Print the state; return 0, 1 or 2, as monitoring plugins do."""
    try:
        ctx.hurry(connect_s=_CONNECT_S, answer_s=_ANSWER_S)
        answer: Document = ctx.call("QueryStatus")
    except errors.GenericError as err:
        answer = _unreachable(ctx, err)
    if ctx.opts.json:
        listing.print_json(ctx, answer)
    else:
        paint = colours.Painter.of(ctx)
        ctx.out_lines(lines(answer, paint), is_styled=True)
    return int(answer["status"])


def _unreachable(ctx: CommandContext, err: errors.GenericError) -> Document:
    """Return the state as far as it is known without the master daemon."""
    from ganeti.decisions.status import document

    host, command = ctx.paths.hostname, ""
    text = str(err.args[0]) if err.args else type(err).__name__
    if isinstance(err, errors.NoMasterError):
        try:
            local.check_is_master(ctx.paths)
            text, command = _absent(ctx)
        except errors.OpPrereqError as elsewhere:
            text = str(elsewhere.args[0])
    elif isinstance(err, errors.LuxiPermissionError):
        text = "only root may ask the master daemon"
    elif isinstance(err, errors.RequestError):
        text = "the master daemon is of an earlier release; restart it"
    return document.unreachable(host, " ".join(text.split()), command)


def _absent(ctx: CommandContext) -> tuple[str, str]:
    from ganeti import _buildconf
    from ganeti.base.filesystem import pidfile

    pid = pidfile.live_pid(ctx.paths.pid_file("ganeti-masterd"), "ganeti-masterd")
    if pid is None:
        start = f"{_buildconf.TOOLSDIR}/daemon-util start ganeti-masterd"
        return "ganeti-masterd does not run on this node, which is the master", start
    text = (
        f"ganeti-masterd (process {pid}) accepts no commands: it starts or stops, or"
        " waits for a majority of the master candidates"
    )
    return text, f"tail {ctx.paths.log_dir}/master-daemon.log"


def lines(answer: Document, paint: Painter) -> Iterator[str]:
    """Yield the lines of the screen; findings may be wider than it."""
    if "cluster" in answer:
        yield from _overview(answer, paint)
        if answer["findings"]:
            yield ""
    findings = answer["findings"]
    for finding in findings[:_SHOWN]:
        kind, name = finding["kind"], finding["object"]
        subject = f"{kind} {name}" if name else kind
        verdict = finding["severity"].upper()
        text = escape(f": {subject}: {finding['text']}")
        yield f"{paint(colours.of_state(verdict), verdict)}{text}"
        if finding["command"]:
            yield escape(f"  {finding['command']}")
    if len(findings) > _SHOWN:
        yield f"and {len(findings) - _SHOWN} more: gnt-cluster status --json"


def _overview(answer: Document, paint: Painter) -> Iterator[str]:
    verdict = answer["severity"].upper()
    shown = paint(colours.of_state(verdict), verdict)
    yield f"{escape(answer['cluster'])}: {shown}, {timestamp(answer['time'])}"
    plain = Painter(is_coloured=False)
    rows = zip(_rows(answer, plain), _rows(answer, paint), strict=True)
    for (label, text), (_label, coloured) in rows:
        begin = f"{label + ':':{_LABEL}}"
        if len(line := begin + text) <= _WIDTH:
            yield begin + coloured
        else:
            yield f"{line[: _WIDTH - 3]}..."


def _rows(answer: Document, paint: Painter) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each row, whose texts of others are escaped."""
    master, jobs = answer["master"], answer["jobs"]
    yield "Master", escape(f"{master['name']}, term {master['term']}")
    yield "Changes", escape(_changes(answer))
    yield "Nodes", _counts(answer["nodes"], paint)
    yield "Instances", _counts(answer["instances"], paint)
    states = ", ".join(
        f"{jobs[word]} {word}" for word in ("running", "waiting", "queued")
    )
    yield "Jobs", f"{states}, {jobs['failed']} failed within the last hour"
    for job in answer["running_jobs"][-_SHOWN_JOBS:]:
        seconds = max(0, int(answer["time"] - job["since"]))
        yield f"  {job['id']}", escape(f"{job['summary']}, {seconds} s")
    yield "Automation", _automation(answer["automation"])
    yield from _capacity(answer["capacity"])
    if (next_end := answer["certificate"]) is not None:
        days = next_end["seconds_left"] // _DAY_S
        text = f"next end in {days} days: {next_end['object']}"
        yield "Certificates", escape(text)
    releases = answer["releases"].items()
    parts = (f"{name} on {plural(count, 'node')}" for name, count in releases)
    yield "Releases", escape(", ".join(parts))


def _changes(answer: Document) -> str:
    master, copies = answer["master"], answer["candidates"]
    current = 1 + sum(copy["is_current"] for copy in copies)
    word = "accepted" if master["accepts_changes"] else "refused"
    return (
        f"{word}, revision {master['revision']}; {current} of {1 + len(copies)}"
        f" candidates current; store: {master['store']}"
    )


def _counts(counts: Mapping[str, int], paint: Painter) -> str:
    words = {word: count for word, count in counts.items() if word != "total" and count}
    parts = ", ".join(
        paint(colours.of_state(word), f"{count} {word}")
        for word, count in words.items()
    )
    return f"{counts['total']}: {parts}" if parts else str(counts["total"])


def _automation(state: Mapping[str, Any]) -> str:
    freeze = state["freeze"]
    parts = ["on" if freeze is None else f"frozen since {timestamp(freeze['since'])}"]
    if state["watcher_pause"] is not None:
        parts.append(f"watcher paused until {timestamp(state['watcher_pause'])}")
    if state["queue_drained"]:
        parts.append("queue drained")
    parts.append(f"{plural(state['incidents'], 'incident')}")
    parts.append(f"{plural(state['node_deaths'], 'node death')}")
    return ", ".join(parts)


def _capacity(capacity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    words = ("memory_promised", "memory_total", "memory_free")
    promised, total, free = (format_size(capacity[word]) for word in words)
    yield "Memory", f"{promised} promised of {total}, {free} free"
    yield "CPUs", f"{capacity['vcpus_promised']} virtual on {capacity['cpus']}"
    yield "N+1", "yes" if capacity["is_n_plus_one"] else "no"
