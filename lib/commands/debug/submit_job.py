"""``submit-job``: submit opcodes from JSON files."""

import json
import os
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs
from ganeti.commands.cli.waiting.executor import JobExecutor


def _read(path: str) -> list[jobs.Op]:
    try:
        with open(path, encoding="utf-8") as stream:
            ops: Any = json.load(stream)
    except (OSError, ValueError) as err:
        why = err.strerror if isinstance(err, OSError) else err
        raise errors.OpPrereqError(
            f"cannot read opcodes from {path}: {why}", ecodes.ECODE_INVAL
        ) from err
    if not isinstance(ops, list) or not all(isinstance(op, dict) for op in ops):
        raise errors.OpPrereqError(
            f"{path}: wanted a list of opcode objects", ecodes.ECODE_INVAL
        )
    return ops


def run(ctx: CommandContext) -> None:
    """Submit jobs and wait for them."""
    opts = ctx.opts
    executor = JobExecutor(ctx)
    jobs_count = ops_count = 0
    if opts.timing_stats:
        ctx.out("Loading...")
    for path in ctx.args:
        ops = _read(path) * opts.rep_op
        for index in range(opts.rep_job):
            executor.add(f"file {os.path.basename(path)}/{index}", *ops)
            jobs_count += 1
            ops_count += len(ops)
    started = ctx.effects.now()
    if opts.timing_stats:
        ctx.out("Submitting...")
    executor.submit(each=opts.each)
    submitted = ctx.effects.now()
    if opts.timing_stats:
        ctx.out("Executing...")
    executor.finish(quiet=not opts.verbose)
    ended = ctx.effects.now()
    if opts.timing_stats:
        ctx.out(f"C:op     {ops_count:4d}")
        ctx.out(f"C:job    {jobs_count:4d}")
        ctx.out(f"T:submit {submitted - started:.4f}")
        ctx.out(f"T:exec   {ended - submitted:.4f}")
        ctx.out(f"T:total  {ended - started:.4f}")
