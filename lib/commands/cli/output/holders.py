"""The reasons for which a job waits: locks, other jobs, filter rules, node calls."""

from collections.abc import Iterator
from typing import Any, Final

from ganeti.base.constants import query
from ganeti.base.text.control_chars import escape
from ganeti.base.text.units import format_duration
from ganeti.commands.cli.context import CommandContext

#: States of a job that has not ended.
_UNFINISHED: Final = ("queued", "waiting", "running", "canceling")


def texts(ctx: CommandContext, job: dict[str, Any]) -> list[str]:
    """Return what a job waits for now, empty if it does not wait.

    Args:
        ctx: the command.
        job: its fields ``id``, ``status`` and ``ops``.
    """
    if job["status"] == "waiting":
        return list(_locks(ctx, job["id"]))
    if job["status"] == "queued":
        waits = [*_dependencies(ctx, job), *_rules(ctx, job)]
        return waits or ["a free worker, see max-running-jobs of gnt-cluster info"]
    if job["status"] == "running":
        return [_running(row) for row in ctx.call("QueryJobWaits", job["id"])]
    return []


def _running(row: list[Any]) -> str:
    text, waited_s, left_s = row
    since = f"{escape(str(text))}, since {format_duration(waited_s)}"
    return (
        since if left_s is None else f"{since}, at most {format_duration(left_s)} left"
    )


def _rows(ctx: CommandContext, what: str, fields: list[str]) -> Iterator[list[Any]]:
    for row in ctx.call("Query", what, fields, None)["data"]:
        yield [value for _status, value in row]


def _locks(ctx: CommandContext, job_id: int) -> Iterator[str]:
    fields = ["name", "mode", "owner", "pending"]
    for name, mode, owners, pending in _rows(ctx, query.QR_LOCK, fields):
        waiting = (owner for _mode, names in pending or () for owner in names)
        if str(job_id) not in map(str, waiting):
            continue
        holders = ", ".join(f"job {owner}" for owner in owners or ())
        held = f"held ({mode}) by {holders}" if holders else "held by nobody now"
        yield f"lock {name}, {held}"


def _dependencies(ctx: CommandContext, job: dict[str, Any]) -> Iterator[str]:
    ids = sorted({row[0] for op in job["ops"] for row in op.get("depends") or ()})
    if not ids:
        return
    rows = ctx.call("QueryJobs", ids, ["status"])
    for job_id, row in zip(ids, rows, strict=True):
        if row is not None and row[0] in _UNFINISHED:
            yield f"the end of job {job_id}, which is {row[0]}"


def _rules(ctx: CommandContext, job: dict[str, Any]) -> Iterator[str]:
    """Yield the filter rule, or the limit in a reason, that holds a queued job."""
    from ganeti.decisions.jobs import filters
    from ganeti.model.objects import FilterRule

    fields = ["watermark", "priority", "predicates", "action", "reason_trail", "uuid"]
    rules = [
        FilterRule(
            **dict(zip(fields, (*row[:2], tuple(row[2]), *row[3:]), strict=True))
        )
        for row in _rows(ctx, query.QR_FILTER, fields)
    ]
    reasons = [tuple(reason) for op in job["ops"] for reason in op.get("reason") or ()]
    decision = filters.Rules(rules).decide(
        filters.JobFacts(job["id"], job["ops"], reasons)
    )
    if decision.action == "PAUSE":
        yield f"filter rule {decision.rule}, which pauses it"
    elif decision.slot is not None:
        limit = decision.slot.limit
        yield f"filter rule {decision.rule}, which lets at most {limit} run at once"
    for slot in filters.buckets(reasons):
        yield f"its reason, which lets at most {slot.limit} run at once"
