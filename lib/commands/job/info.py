"""``info``: details of jobs."""

from typing import Any, Final

from ganeti.base.constants import jobqueue
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import holders, info_tree, listing
from ganeti.commands.cli.output.text import timestamp
from ganeti.commands.job.ids import parse_id

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


def run(ctx: CommandContext) -> None:
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
    jobs = [dict(zip(FIELDS, row, strict=True)) for row in rows if row is not None]
    return [
        job | {"oplog": [_lasting(log) for log in job["oplog"]]}
        for job in jobs
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
