"""Several jobs: submit them together, wait for all, print their messages."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import error_text, hints, listing
from ganeti.commands.cli.waiting import jobs, submission

#: The next job to follow is chosen among this many.
_WINDOW: Final = 25
_NOT_STARTED: Final = ("queued", "waiting", "canceling")


class JobOutcome(NamedTuple):
    """The outcome of one job.

    Attributes:
        label: the object that the job worked on, may be empty.
        success: the job succeeded.
        result: results of its opcodes, or the error's text.
        job_id: None if the job was not submitted.
    """

    label: str
    success: bool
    result: Any
    job_id: int | None


class JobExecutor:
    """Collects jobs, submits them in one call, and waits for all.

    Args:
        ctx: the command.
        generic: add reason trail, priority and so on to the opcodes.
    """

    def __init__(self, ctx: CommandContext, *, generic: bool = True) -> None:
        self._ctx = ctx
        self._generic = generic
        self._queue: list[tuple[str, list[jobs.Op]]] = []
        self._submitted: list[tuple[str, int]] = []
        self._refused: list[JobOutcome] = []

    def add(self, label: str, *ops: jobs.Op) -> None:
        """Add a job; it is submitted later."""
        if self._generic:
            ops = tuple(jobs.with_generic(self._ctx, op) for op in ops)
        self._queue.append((label, list(ops)))

    def adopt(self, job_list: list[Any]) -> None:
        """Add jobs that the master submitted: ``[ok, id or text]`` each."""
        for ok, value in job_list:
            self._note("", ok, value)

    def planned(self) -> int | None:
        """Print plans with ``--plan``; return the exit code, None without it."""
        return submission.planned(self._ctx, [ops for _, ops in self._queue])

    def submit(self, *, each: bool = False) -> None:
        """Submit the jobs that were added.

        Args:
            each: one call per job instead of one for all.
        """
        all_ops = [ops for _, ops in self._queue]
        if each:
            answers = [self._submit_one(ops) for ops in all_ops]
        elif all_ops:
            answers = jobs.explained(self._ctx, "SubmitManyJobs", all_ops, all_ops)
        else:
            answers = []
        for (label, _), (ok, value) in zip(self._queue, answers, strict=True):
            self._note(label, ok, value)
        self._queue = []
        if self._ctx.option("print_jobid"):
            for _, job_id in self._submitted:
                self._ctx.out(str(job_id))

    def _submit_one(self, ops: list[jobs.Op]) -> list[Any]:
        try:
            return [True, jobs.submit(self._ctx, ops)]
        except errors.GenericError as err:
            return [False, str(err)]

    def _note(self, label: str, ok: bool, value: Any) -> None:
        if ok:
            self._submitted.append((label, int(value)))
        else:
            self._refused.append(
                JobOutcome(label, success=False, result=value, job_id=None)
            )

    def finish(self, *, quiet: bool = False) -> list[JobOutcome]:
        """Submit the remaining jobs and wait for all; return their outcomes.

        Args:
            quiet: leave out the line with the ids.
        """
        self.submit()
        ctx = self._ctx
        if self._submitted and not quiet:
            ids = ", ".join(str(job_id) for _, job_id in self._submitted)
            ctx.out(f"Submitted jobs {ids}")
        for refused in self._refused:
            ctx.err(f"Failed to submit job{_for(refused.label)}: {refused.result}")
        outcomes = list(self._refused)
        pending, total = self._submitted, len(self._submitted)
        while pending:
            if total > 1:
                ctx.position = f"{total - len(pending)} of {total} jobs ended; "
            label, job_id = pending.pop(self._choose(pending))
            ctx.out(f"Waiting for job {job_id}{_for(label)} ...")
            outcomes.append(self._wait(label, job_id))
        ctx.position = ""
        self._submitted, self._refused = [], []
        return outcomes

    def _choose(self, pending: list[tuple[str, int]]) -> int:
        """Return the index of a job that already runs, else of the first one."""
        ids = [job_id for _, job_id in pending[:_WINDOW]]
        if len(ids) == 1:
            return 0
        for index, row in enumerate(self._ctx.call("QueryJobs", ids, ["status"])):
            if row is not None and row[0] not in (None, *_NOT_STARTED):
                return index
        return 0

    def _wait(self, label: str, job_id: int) -> JobOutcome:
        ctx = self._ctx
        try:
            result = jobs.wait(ctx, job_id, jobs.print_log(ctx))
        except errors.JobLost:
            ctx.err(
                f"Job {job_id}{_for(label)} has been archived, cannot check its result"
            )
            return JobOutcome(label, success=False, result="job lost", job_id=job_id)
        except errors.GenericError as err:
            if isinstance(err, (errors.LuxiError, errors.CommitUnknownError)):
                raise  # no answer about the job, which may still run
            text, _ = error_text.describe(err)
            ctx.err(f"Job {job_id}{_for(label)} has failed: {text}")
            hints.show(ctx, hints.find(text))
            return JobOutcome(label, success=False, result=text, job_id=job_id)
        return JobOutcome(label, success=True, result=result, job_id=job_id)

    def finish_or_show(
        self,
        *,
        quiet: bool = False,
        show: Callable[[JobOutcome], None] | None = None,
    ) -> int:
        """Plan the jobs, list them with ``--submit``, or wait; return the exit code.

        Args:
            quiet: leave out the line with the ids when waiting.
            show: prints the result of a job that succeeded, after all jobs ended.
        """
        ctx = self._ctx
        if (code := self.planned()) is not None:
            return code
        if not ctx.option("submit_only"):
            outcomes = self.finish(quiet=quiet)
            for outcome in outcomes:
                if show is not None and outcome.success:
                    show(outcome)
            return _code(all(outcome.success for outcome in outcomes))
        self.submit()
        for label, job_id in self._submitted:
            ctx.out(f"{job_id}: {label}")
        for refused in self._refused:
            ctx.err(f"Failure for {refused.label}: {refused.result}")
        return _code(not self._refused)


def for_named(
    ctx: CommandContext,
    kind: str,
    operation: jobs.Op,
    *,
    known: list[str] | None = None,
    show: Callable[[Any], None] | None = None,
) -> int:
    """Explain, plan, submit or run one job per object that the command names.

    Args:
        ctx: the command; its arguments are names of objects.
        kind: of the objects, as in the parameter ``KIND_name`` of the opcode.
        operation: the opcode without the name.
        known: the full names of several objects, if the caller has them.
        show: prints the result of a job that succeeded.

    Raises:
        OpPrereqError: one of several objects does not exist; then nothing is done.
    """
    key = f"{kind}_name"
    names = known or ctx.args
    if len(names) > 1 and not known:
        names = listing.full_names(ctx, kind, names)
    if ctx.option("explain"):
        from ganeti.commands.cli.output import explain

        return max(explain.run(ctx, {**operation, key: name}, name) for name in names)
    if len(ctx.args) == 1:
        job = submission.submit_or_run(ctx, {**operation, key: ctx.args[0]})
        if show is not None and job.is_done:
            show(job.result)
        return job.code
    executor = JobExecutor(ctx)
    for name in names:
        executor.add(name, {**operation, key: name})
    return executor.finish_or_show(
        show=None if show is None else lambda outcome: show(outcome.result[-1])
    )


def _for(label: str) -> str:
    return f" for {label}" if label else ""


def _code(success: bool) -> int:
    return exitcodes.EXIT_SUCCESS if success else exitcodes.EXIT_FAILURE


def run_with_jobs(
    ctx: CommandContext, operation: jobs.Op
) -> tuple[submission.Submission, list[JobOutcome]]:
    """Run an opcode whose result lists further jobs; wait for them too.

    Returns:
        The submission of the opcode's own job, and the outcomes of the other jobs.
    """
    job = submission.submit_or_run(ctx, operation)
    return job, wait_for_jobs(ctx, job.result) if job.is_done else []


def run_and_report(
    ctx: CommandContext, operations: Sequence[jobs.Op], *, good: str, bad: str
) -> int:
    """Run opcodes whose results list further jobs, then `report` all outcomes."""
    ops = [jobs.with_generic(ctx, operation) for operation in operations]
    if (code := submission.planned(ctx, [[op] for op in ops])) is not None:
        return code
    runs = [run_with_jobs(ctx, operation) for operation in operations]
    outcomes = [outcome for _, more in runs for outcome in more]
    if all(job.is_done for job, _ in runs):
        return report(ctx, outcomes, good=good, bad=bad)
    return max(job.code for job, _ in runs)


def wait_for_jobs(ctx: CommandContext, result: Any) -> list[JobOutcome]:
    """Wait for the jobs that an opcode's result lists under ``jobs``."""
    executor = JobExecutor(ctx)
    executor.adopt(result["jobs"])
    return executor.finish()


def report(
    ctx: CommandContext, outcomes: Sequence[JobOutcome], *, good: str, bad: str
) -> int:
    """Print how the jobs ended; return the exit code.

    Args:
        ctx: the command.
        outcomes: of the jobs.
        good: line when all jobs succeeded; replaced with ``--dry-run``.
        bad: line otherwise; ``{}`` stands for the number of failures.
    """
    failed = sum(not outcome.success for outcome in outcomes)
    if failed:
        ctx.out(bad.format(failed))
        return exitcodes.EXIT_FAILURE
    ctx.out("Nothing was done." if ctx.option("dry_run") else good)
    return exitcodes.EXIT_SUCCESS
