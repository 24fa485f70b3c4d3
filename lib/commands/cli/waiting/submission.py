"""The job of a command: planned (``--plan``), submitted (``--submit``) or awaited.

A command that can end before its job gets a `Submission` and returns its exit code;
nothing here ends a command by an exception. The format of job messages belongs to
`ganeti.commands.cli.waiting.jobs`.
"""

from typing import Any, NamedTuple

from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs


class Submission(NamedTuple):
    """The result of handing over a job.

    Attributes:
        code: exit code of a command without further steps.
        is_done: the command waited for the job. Otherwise the plan or the job id was
            printed, and nothing is left to do.
        result: result of the job's last opcode, None unless ``is_done``.
    """

    code: int
    is_done: bool
    result: Any = None


def planned(ctx: CommandContext, job_list: list[list[jobs.Op]]) -> int | None:
    """Print the plans of jobs with ``--plan``; return the exit code, None without it.

    Raises:
        OpPrereqError: an opcode is malformed.
        GenericError: the master cannot plan.
    """
    if not jobs.is_planned(ctx, job_list):
        return None
    from ganeti.commands.cli.waiting import plans

    return plans.show(ctx, job_list)


def run_job(
    ctx: CommandContext, ops: list[jobs.Op], *, drained: bool = False
) -> Submission:
    """Plan one job of these opcodes, or submit it and wait for it."""
    if (code := planned(ctx, [ops])) is not None:
        return Submission(code, is_done=False)
    results = jobs.run_job(ctx, ops, drained=drained)
    return Submission(exitcodes.EXIT_SUCCESS, is_done=True, result=results[-1])


def run(ctx: CommandContext, operation: jobs.Op, *, generic: bool = True) -> Submission:
    """Plan an opcode, or submit it as a job and wait for it.

    Args:
        ctx: the command.
        operation: the opcode.
        generic: add reason trail, priority and so on to the opcode.
    """
    return run_job(ctx, [jobs.with_generic(ctx, operation) if generic else operation])


def submit_or_run(ctx: CommandContext, operation: jobs.Op) -> Submission:
    """Plan, submit or run an opcode; with ``--submit`` print the job's id."""
    if not ctx.option("submit_only"):
        return run(ctx, operation)
    ops = [jobs.with_generic(ctx, operation)]
    if (code := planned(ctx, [ops])) is not None:
        return Submission(code, is_done=False)
    job_id = jobs.submit(ctx, ops)
    if ctx.option("print_jobid"):
        ctx.out(str(job_id))
    ctx.err(f"JobID: {job_id}")
    return Submission(exitcodes.EXIT_SUCCESS, is_done=False)
