"""``batch-create``: create the instances that a JSON file describes."""

import json
from typing import Any, Final

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import explain
from ganeti.commands.cli.waiting import executor, jobs, submission
from ganeti.commands.instance.devices import refusal

_OP_ID: Final = "OP_INSTANCE_CREATE"


def _read(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            entries = json.load(stream)
    except OSError as err:
        raise refusal(f"cannot read {path}: {err.strerror}") from err
    except ValueError as err:
        raise refusal(f"{path}: not JSON: {err}") from err
    if not isinstance(entries, list):
        raise refusal(f"{path}: wanted a list of objects")
    return entries


def _operation(entry: Any, index: int) -> jobs.Op:
    from ganeti.model import opcodes

    if not isinstance(entry, dict):
        raise refusal(f"entry {index}: wanted an object, found {entry!r}")
    known = set(opcodes.InstanceCreate.__struct_fields__)
    unknown = sorted(set(entry) - known)
    if unknown:
        raise refusal(f"entry {index}: unknown parameters {', '.join(unknown)}")
    return {**entry, "OP_ID": _OP_ID}


def run(ctx: CommandContext) -> int:
    """Create instances in one allocation."""
    entries = _read(ctx.args[0])
    operation = jobs.op(
        "OP_INSTANCE_MULTI_ALLOC",
        iallocator=ctx.opts.iallocator,
        instances=[_operation(entry, index) for index, entry in enumerate(entries)],
    )
    if ctx.opts.explain:
        return explain.run(ctx, operation)
    job = submission.submit_or_run(ctx, operation)
    if not job.is_done:
        return job.code
    outcomes = executor.wait_for_jobs(ctx, job.result)
    for name in job.result["failed"]:
        text = "the allocator found no nodes"
        ctx.err(f"Instance {name}: {text}")
        outcomes.append(
            executor.JobOutcome(name, success=False, result=text, job_id=None)
        )
    return executor.report(
        ctx,
        outcomes,
        good="All instances created successfully.",
        bad="There were {} errors during the creation.",
    )
