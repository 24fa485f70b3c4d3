"""Commands of ``gnt-job``, except ``list``."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes, jobqueue
from ganeti.base.errors import refusal
from ganeti.base.text import units
from ganeti.commands import lists
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.model import PRIORITIES
from ganeti.commands.cli.output import error_text, hints, holders, info_tree, listing
from ganeti.commands.cli.output.table import timestamp
from ganeti.commands.cli.waiting import jobs


def parse_id(text: str) -> int:
    """Return a job id.

    Raises:
        OpPrereqError: not a number.
    """
    job_id = units.whole_number(text)
    if job_id is None:
        raise refusal(f"job id: wanted a number, found {text!r}")
    return job_id


#: Time limit for the master in seconds: half of a client's time limit.
_TIMEOUT_S: Final = 89
_ALL: Final = -1


def archive(ctx: CommandContext) -> int:
    """Archive finished jobs."""
    code = exitcodes.EXIT_SUCCESS
    for word in ctx.args:
        job_id = parse_id(word)
        if not ctx.call("ArchiveJob", job_id):
            ctx.err(f"Failed to archive job with ID '{job_id}'")
            code = exitcodes.EXIT_FAILURE
    return code


def autoarchive(ctx: CommandContext) -> None:
    """Archive finished jobs older than an age."""
    word = ctx.args[0]
    age = _ALL if word == "all" else units.parse_duration(word)
    archived, left = ctx.call("AutoArchiveJobs", age, _TIMEOUT_S)
    ctx.out(f"Archived {archived} jobs, {left} unchecked left")


FIELDS: Final = [
    "id",
    "status",
    "ops",
    "opresult",
    "opstatus",
    "oplog",
    "opstart",
    "opexec",
    "opend",
    "received_ts",
    "start_ts",
    "end_ts",
]


def info(ctx: CommandContext) -> None:
    """Show jobs with their opcodes, results and messages."""
    ids = [parse_id(word) for word in ctx.args]
    by_id = {item["id"]: item for item in _query(ctx, ids)}
    if ctx.opts.json:
        listing.print_json(ctx, [by_id.get(job_id) for job_id in ids])
        return
    ctx.out(
        info_tree.render(
            [
                _job(ctx, by_id[job_id])
                if job_id in by_id
                else f"Job ID {job_id} not found"
                for job_id in ids
            ]
        )
    )


def _query(ctx: CommandContext, ids: list[int]) -> list[dict[str, Any]]:
    rows = ctx.call("QueryJobs", ids, FIELDS)
    items = [dict(zip(FIELDS, row, strict=True)) for row in rows if row is not None]
    return [
        job | {"oplog": [_lasting(log) for log in job["oplog"]]}
        for job in items
        if job["ops"] is not None
    ]


def _lasting(log: list[list[Any]]) -> list[list[Any]]:
    """Omit entries for waiting clients: progress, and reasons of allocators."""
    passing = (jobqueue.ELOG_PROGRESS, jobqueue.ELOG_PLACEMENT)
    return [entry for entry in log if entry[2] not in passing]


def _seconds(stamp: Any) -> float | None:
    return stamp[0] + stamp[1] / 1_000_000 if stamp else None


def _time(stamp: Any, before: Any) -> str:
    if stamp is None:
        return f"unknown ({stamp})"
    text = timestamp(stamp, micro=True)
    start, end = _seconds(before), _seconds(stamp)
    if start is None or end is None:
        return text
    return f"{text} (delta {end - start:.6f}s)"


def _job(ctx: CommandContext, job: dict[str, Any]) -> info_tree.Pairs:
    received, start, end = job["received_ts"], job["start_ts"], job["end_ts"]
    first, last = _seconds(received), _seconds(end)
    total = "N/A" if first is None or last is None else f"{last - first:.6f} seconds"
    opcodes = [
        _opcode(job, index, operation) for index, operation in enumerate(job["ops"])
    ]
    waits = holders.texts(ctx, job)
    return info_tree.Pairs(
        [
            ("Job ID", job["id"]),
            ("Status", job["status"]),
            *([("Waits for", waits)] if waits else []),
            ("Received", _time(received, None), "times"),
            ("Processing start", _time(start, received), "times"),
            ("Processing end", _time(end, start), "times"),
            ("Total processing time", total),
            ("Opcodes", opcodes),
        ]
    )


def _opcode(
    job: dict[str, Any], index: int, operation: dict[str, Any]
) -> info_tree.Pairs:
    log = [
        info_tree.Pairs(
            [
                ("Time", timestamp(stamp, micro=True)),
                ("Content", (serial, kind, content)),
            ]
        )
        for serial, stamp, kind, content in job["oplog"][index]
    ]
    return info_tree.Pairs(
        [
            ("Opcode", operation["OP_ID"]),
            ("Status", job["opstatus"][index]),
            ("Processing start", timestamp(job["opstart"][index], micro=True), "times"),
            ("Execution start", timestamp(job["opexec"][index], micro=True), "times"),
            ("Processing end", timestamp(job["opend"][index], micro=True), "times"),
            ("Input fields", operation),
            ("Result", job["opresult"][index]),
            ("Execution log", log),
        ]
    )


def _follow(ctx: CommandContext, job_id: int, on_log: jobs.OnLog | None) -> int:
    try:
        jobs.wait(ctx, job_id, on_log)
    except errors.LuxiError:
        raise
    except errors.GenericError as err:
        text, _ = error_text.describe(err)
        ctx.err(f"Job {job_id} failed: {text}")
        hints.show(ctx, hints.find(text))
        return exitcodes.EXIT_FAILURE
    return exitcodes.EXIT_SUCCESS


def watch(ctx: CommandContext) -> int:
    """Print the messages of a job until it ends."""
    job_id = parse_id(ctx.args[0])
    headline = f"Output from job {job_id} follows"
    ctx.out(headline)
    ctx.out("-" * len(headline))
    code = _follow(ctx, job_id, jobs.print_log(ctx))
    if code == exitcodes.EXIT_SUCCESS and ctx.shows_progress:
        # A job may have no messages, so print its end on a terminal.
        ctx.err(f"Job {job_id} was successful")
    return code


def wait(ctx: CommandContext) -> int:
    """Wait for a job; print no messages."""
    return _follow(ctx, parse_id(ctx.args[0]), None)


def _for_each(ctx: CommandContext, question: str, method: str, argument: Any) -> int:
    """Call a method of the master for each selected job; print the answers."""
    states = ctx.opts.status_filter
    if bool(states) == bool(ctx.args):
        raise refusal("give either job ids or one status option")
    if not states:
        ids = [parse_id(word) for word in ctx.args]
    else:
        wanted = lists.status_filter(states)
        rows = listing.query_objects(ctx, "job", ["id"], wanted)
        ids = [item["id"] for item in rows]
        if not ids:
            ctx.out("No jobs have this status")
            return exitcodes.EXIT_FAILURE
        if not ctx.opts.force and not _agreed(ctx, question, wanted):
            return exitcodes.EXIT_CONFIRMATION
    code = exitcodes.EXIT_SUCCESS
    for job_id in ids:
        success, text = ctx.call(method, job_id, argument)
        ctx.out(text)
        if not success:
            code = exitcodes.EXIT_FAILURE
    return code


def _agreed(ctx: CommandContext, question: str, wanted: list[Any] | None) -> bool:
    ctx.opts.separator, ctx.opts.no_headers = None, False
    listing.show(ctx, lists.JOBS, ["id", "status", "summary"], wanted)
    return prompts.confirm(ctx, question)


def cancel(ctx: CommandContext) -> int:
    """Cancel jobs, or kill them."""
    if ctx.opts.kill and not ctx.opts.yes_do_it:
        raise refusal(
            "--kill ends running jobs at any point and may leave resources behind; add"
            " --yes-do-it to confirm"
        )
    return _for_each(ctx, "Cancel the jobs listed above?", "CancelJob", ctx.opts.kill)


def change_priority(ctx: CommandContext) -> int:
    """Change the priority of jobs."""
    word = ctx.opts.priority
    if word is None:
        raise refusal("--priority is needed: low, normal or high")
    question = f"Change the priority of the jobs listed above to {word}?"
    return _for_each(ctx, question, "ChangeJobPriority", PRIORITIES[word])
