"""One job: submit it, wait for it, print its messages.

Commands build opcodes in wire form, so they need not load all opcode classes. If the
master finds an opcode malformed, `ganeti.model.opcodes` explains the error.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import jobqueue
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.model import PRIORITIES
from ganeti.commands.cli.options import PLAN_JSON

Op = dict[str, Any]
#: Called with each message of a job: [serial, [seconds, microseconds], kind, content].
OnLog = Callable[[list[Any]], None]

_FINAL: Final = frozenset(("canceled", "success", "error"))
#: Seconds without a change until a note states why the job waits.
_NOTE_AFTER_S: Final = 60
#: On a terminal: seconds between updates of the elapsed time on the last line.
_TICK_S: Final = 2
#: On a terminal: seconds without a change until the line says what the job waits for.
_EXPLAIN_AFTER_S: Final = 5
#: Kind of log entries with the progress of a step; see ``constants.jobqueue``.
_PROGRESS: Final = "progress"
#: Kind of log entries with data about chosen nodes; see ``constants.jobqueue``.
PLACEMENT: Final = "placement"
#: Queries that a command needs to decide on its jobs; executed even with ``--plan``.
_QUESTIONS: Final = frozenset(("OP_CLUSTER_VERIFY_DISKS", "OP_OS_DIAGNOSE"))
_NOTES: Final = {
    "queued": "Job {} is waiting in queue",
    "waiting": "Job {} is trying to acquire all necessary locks",
}
_DOING: Final = {
    "queued": "waiting in the queue",
    "waiting": "waiting for locks",
    "canceling": "being canceled",
    "running": "running",
}


def op(op_id: str, /, **parameters: Any) -> Op:
    """Return the wire form of an opcode; parameters that are None are left out."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return {"OP_ID": op_id, **given}


def with_generic(ctx: CommandContext, operation: Op) -> Op:
    """Return the opcode with debug level, dry run, priority and reason trail."""
    now = int(ctx.effects.now() * 1_000_000_000)
    trail: list[Any] = []
    if ctx.opts.reason:
        trail.append(["gnt:user", ctx.opts.reason, now])
    trail.append([f"gnt:client:{ctx.program.name}", ctx.word, now])
    full = {**operation, "debug_level": ctx.opts.debug, "reason": trail}
    if ctx.option("dry_run"):
        full["dry_run"] = True
    priority = ctx.option("priority")
    if priority in PRIORITIES:
        full["priority"] = PRIORITIES[priority]
    return full


def submit(ctx: CommandContext, ops: list[Op], *, drained: bool = False) -> int:
    """Submit one job; return its id.

    Args:
        ctx: the command.
        ops: its opcodes.
        drained: submit even to a drained queue.

    Raises:
        OpPrereqError: an opcode is malformed.
        GenericError: the master refuses.
    """
    method = "SubmitJobToDrainedQueue" if drained else "SubmitJob"
    job_id: int = explained(ctx, method, ops, [ops])
    return job_id


def is_planned(ctx: CommandContext, job_list: list[list[Op]]) -> bool:
    """Return whether ``--plan`` keeps the command from submitting these jobs."""
    return bool(ctx.option("plan")) and not all(
        operation["OP_ID"] in _QUESTIONS for ops in job_list for operation in ops
    )


def explained(
    ctx: CommandContext, method: str, argument: list[Any], jobs: list[list[Op]]
) -> Any:
    """Return the result of a submitting call; the error names a malformed opcode."""
    if is_planned(ctx, jobs):
        raise errors.ProgrammerError(f"{ctx.word} --plan would submit a job")
    is_plain = not (ctx.option("plan") or ctx.option("explain"))
    if ctx.option("json") and is_plain and PLAN_JSON in ctx.command.options:
        raise CliError("--json needs --plan")
    answer = explained_call(ctx, method, argument, jobs)
    rows = answer if isinstance(answer, list) else [[True, answer]]
    ctx.jobs.update(int(value) for ok, value in rows if ok)
    return answer


def explained_call(
    ctx: CommandContext, method: str, argument: list[Any], jobs: list[list[Op]]
) -> Any:
    """Return the result of a call with opcodes; the error names a malformed one."""
    try:
        return ctx.call(method, argument)
    except errors.RequestError:
        from ganeti.model import opcodes

        for ops in jobs:
            for operation in ops:
                opcodes.decode(operation)
        raise


def print_log(ctx: CommandContext) -> OnLog:
    """Return a printer of job messages: on stdout, or on stderr beside JSON output."""
    write = ctx.err if ctx.option("json") else ctx.out

    def show(entry: list[Any]) -> None:
        _, (seconds, _), kind, content = entry
        if kind == PLACEMENT:
            return
        write(f"{time.ctime(seconds)} {escape(str(content))}")

    return show


def wait(ctx: CommandContext, job_id: int, on_log: OnLog | None) -> list[Any]:
    """Wait for a job; return the results of its opcodes.

    Args:
        ctx: the command.
        job_id: the job.
        on_log: called with each message; None drops them.

    Raises:
        JobLost: the job no longer exists.
        JobCanceled: the job was canceled.
        CommitUnknownError: the master stopped waiting for its copies.
        GenericError: the error of its first failed opcode.
    """
    status = _follow(ctx, job_id, on_log)
    ctx.jobs.discard(job_id)
    answer = ctx.call("QueryJobs", [job_id], ["opstatus", "opresult"])
    if not answer or answer[0] is None or answer[0][0] is None:
        raise errors.JobLost(f"Job with id {job_id} lost")
    op_status, op_result = answer[0]
    if status == "success":
        results: list[Any] = op_result
        return results
    if status in ("canceled", "canceling"):
        raise errors.JobCanceled(f"Job was canceled{_rejection(op_result)}")
    raise _failure(op_status, op_result)


def _rejection(op_result: list[Any]) -> str:
    """Return the filter rule that canceled a job, as the end of a sentence."""
    texts = [text for text in op_result if isinstance(text, str)]
    rejected = [text for text in texts if text.startswith(jobqueue.REJECTED_TEXT)]
    return f": {rejected[0]}" if rejected else ""


def _failure(op_status: list[str], op_result: list[Any]) -> errors.GenericError:
    succeeded = False
    for index, (status, result) in enumerate(zip(op_status, op_result, strict=True)):
        if status == "success":
            succeeded = True
        elif status == "error":
            known = errors.decode(result)
            if known is not None:
                return known
            text = str(result)
            if succeeded:
                text = f"partial failure (opcode {index}): {text}"
            return errors.OpExecError(text)
    return errors.OpExecError(str(op_result))


def _follow(ctx: CommandContext, job_id: int, on_log: OnLog | None) -> str:
    """Wait for the end of a job; return its final status."""
    previous: list[Any] | None = None
    serial: int | None = None
    waiter = _Waiter(ctx, job_id)
    while True:
        args = (job_id, ["status"], previous, serial, waiter.timeout_s)
        try:
            answer = ctx.call("WaitForJobChange", *args)
        except errors.StorageError as err:
            raise errors.CommitUnknownError(*err.args) from err
        if answer == "nochange":
            waiter.unchanged(str(previous[0]) if previous else "")
            continue
        info, entries = answer
        status = info[0]
        if status is None:
            raise errors.JobLost(f"Job with id {job_id} lost")
        for entry in entries or ():
            serial = entry[0] if serial is None else max(serial, entry[0])
            if entry[2] == _PROGRESS:
                waiter.note = escape(str(entry[3]))
                continue
            waiter.note = ""
            if on_log is not None:
                on_log(entry)
        if status in _FINAL:
            return str(status)
        if entries or info != previous:
            waiter.changed(status)
        else:
            waiter.unchanged(status)
        previous = info


class _Waiter:
    """Notes to the user while a job does not advance."""

    def __init__(self, ctx: CommandContext, job_id: int) -> None:
        self.ctx = ctx
        self.job_id = job_id
        self.timeout_s = _TICK_S if ctx.shows_progress else _NOTE_AFTER_S
        self.started = ctx.effects.now()
        self.changed_at = self.started
        #: Progress of the present step, as the job reports it.
        self.note = ""
        self._noted: set[str] = set()
        self._ops: list[Op] | None = None
        self._explains = True

    def changed(self, status: str) -> None:
        """Record a change of the job."""
        self.changed_at = self.ctx.effects.now()
        self._show(status)

    def unchanged(self, status: str) -> None:
        """Print why the job waits, once per state."""
        if not self.ctx.shows_progress:
            quiet = True
        else:
            quiet = self.ctx.effects.now() - self.changed_at >= _NOTE_AFTER_S
        if quiet and status in _NOTES and status not in self._noted:
            self._noted.add(status)
            self.ctx.err(_NOTES[status].format(self.job_id))
            if status == "waiting":
                from ganeti.commands.cli.output import hints

                hints.show(self.ctx, hints.WAITING)
        self._show(status)

    def _show(self, status: str) -> None:
        now = self.ctx.effects.now()
        elapsed = now - self.started
        if self.ctx.shows_progress and elapsed >= _TICK_S:
            doing = self.note or self._doing(status, now - self.changed_at)
            head = f"{self.ctx.position}job {self.job_id}"
            self.ctx.progress(f"{head}: {doing}, {elapsed:.0f} s")

    def _doing(self, status: str, quiet_s: float) -> str:
        """Return what a job does that reports no progress, or what it waits for."""
        doing = _DOING.get(status, status)
        if quiet_s < _EXPLAIN_AFTER_S:
            return doing
        waits = self._waits(status) if self._explains else ""
        return waits or f"{doing}, nothing new for {quiet_s:.0f} s"

    def _waits(self, status: str) -> str:
        """Return what the job waits for, empty if the master does not know it."""
        from ganeti.commands.cli.output import holders

        try:
            if self._ops is None:
                answer = self.ctx.call("QueryJobs", [self.job_id], ["ops"])
                self._ops = (answer[0] or [None])[0] or []
            job = {"id": self.job_id, "status": status, "ops": self._ops}
            waits = holders.texts(self.ctx, job)
        except errors.GenericError:
            # The master may be one of an earlier release; the wait itself goes on.
            self._explains = False
            return ""
        more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
        return f"waits for {waits[0]}{more}" if waits else ""


def run(ctx: CommandContext, operation: Op, *, generic: bool = True) -> Any:
    """Submit an opcode as a job, wait and print its messages; return its result."""
    ops = [with_generic(ctx, operation) if generic else operation]
    return run_job(ctx, ops)[0]


def run_job(ctx: CommandContext, ops: list[Op], *, drained: bool = False) -> list[Any]:
    """Submit these opcodes as one job and wait; return their results."""
    job_id = submit(ctx, ops, drained=drained)
    if ctx.option("print_jobid"):
        ctx.out(str(job_id))
    return wait(ctx, job_id, print_log(ctx))
