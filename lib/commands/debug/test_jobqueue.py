"""``test-jobqueue``: test locks, execution, logs, failure and cancelation of jobs.

The test opcode stops at certain points and logs the path of a socket. It continues when
it receives a byte there.
"""

import socket
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes, jobqueue
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs

#: Seconds until the waiting opcode must accept the byte.
_TIMEOUT_S: Final = 20
#: Point at which the opcode stops -> expected status of the job.
_STATUS_AT: Final = {
    "expandnames": "waiting",
    "exec": "running",
    "startmsg": "running",
    "logmsg": "running",
}
_MESSAGES: Final = ("first message", "second message", "a third, with\ttab")


class _Watcher:
    """Log reader: checks a test job's status at each stop and lets the job continue."""

    def __init__(self, ctx: CommandContext, job_id: int) -> None:
        self._ctx = ctx
        self._job_id = job_id
        self.points: list[str] = []
        self.messages: list[str] = []

    def __call__(self, entry: list[Any]) -> None:
        _, _, kind, content = entry
        if kind != jobqueue.ELOG_JQUEUE_TEST:
            self.messages.append(str(content))
            return
        path, point, _ = content
        self.points.append(point)
        ((status,),) = self._ctx.call("QueryJobs", [self._job_id], ["status"])
        try:
            _expect(f"status at {point}", status, _STATUS_AT[point])
        finally:
            _resume(path)


def _resume(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_TIMEOUT_S)
        try:
            client.connect(path)
            client.sendall(b"\n")
        except OSError as err:
            raise errors.OpExecError(
                f"test job: no process listens at {path}: {err}"
            ) from err


def _expect(what: str, actual: Any, expected: Any) -> None:
    if actual != expected:
        raise errors.OpExecError(f"{what}: wanted {expected!r}, found {actual!r}")


def _test_op(ctx: CommandContext, **parameters: Any) -> jobs.Op:
    return jobs.with_generic(ctx, jobs.op("OP_TEST_JQUEUE", **parameters))


def _stops_and_messages(ctx: CommandContext) -> None:
    operation = _test_op(
        ctx, notify_waitlock=True, notify_exec=True, log_messages=list(_MESSAGES)
    )
    job_id = jobs.submit(ctx, [operation])
    watcher = _Watcher(ctx, job_id)
    results = jobs.wait(ctx, job_id, watcher)
    _expect("result", results, [True])
    _expect("messages", watcher.messages, [f"TESTMSG={text}" for text in _MESSAGES])
    stops = ["expandnames", "exec", "startmsg", *["logmsg"] * len(_MESSAGES)]
    _expect("stops", watcher.points, stops)


def _failure_in_the_middle(ctx: CommandContext) -> None:
    ops = [_test_op(ctx), _test_op(ctx, fail=True), _test_op(ctx)]
    job_id = jobs.submit(ctx, ops)
    try:
        jobs.wait(ctx, job_id, None)
    except errors.OpExecError:
        pass
    else:
        raise errors.OpExecError(f"job {job_id} should have failed, but succeeded")
    ((status, op_status),) = ctx.call("QueryJobs", [job_id], ["status", "opstatus"])
    _expect("status", status, "error")
    _expect("opcodes", op_status, ["success", "error", "error"])


def _cancel_before_it_runs(ctx: CommandContext) -> None:
    sleeper = jobs.op("OP_TEST_DELAY", duration=1e-6)
    job_id = jobs.submit(ctx, [_test_op(ctx, notify_waitlock=True)])
    blocked = jobs.with_generic(
        ctx, {**sleeper, "depends": [[job_id, ["success", "error", "canceled"]]]}
    )
    waiting_id = jobs.submit(ctx, [blocked])
    success, text = ctx.call("CancelJob", waiting_id, False)
    if not success:
        raise errors.OpExecError(f"job {waiting_id} was not canceled: {text}")
    try:
        jobs.wait(ctx, waiting_id, None)
    except errors.JobCanceled:
        pass
    else:
        raise errors.OpExecError(f"job {waiting_id} was canceled, but was executed")
    jobs.wait(ctx, job_id, _Watcher(ctx, job_id))


def _many_jobs(ctx: CommandContext) -> None:
    operation = jobs.with_generic(ctx, jobs.op("OP_TEST_DELAY", duration=1e-6))
    answers = jobs.explained(
        ctx, "SubmitManyJobs", [[operation]] * 5, [[operation]] * 5
    )
    ids = [job_id for _, job_id in answers]
    _expect("ids", ids, list(range(ids[0], ids[0] + 5)))
    for job_id in ids:
        jobs.wait(ctx, job_id, None)


_TESTS: Final = (
    ("stops, log messages and states", _stops_and_messages),
    ("failure of an opcode", _failure_in_the_middle),
    ("cancelation", _cancel_before_it_runs),
    ("several jobs at once", _many_jobs),
)


def run(ctx: CommandContext) -> int:
    """Test the job queue."""
    for title, test in _TESTS:
        ctx.out(f"Testing {title}")
        test(ctx)
    ctx.out("Job queue test finished successfully")
    return exitcodes.EXIT_SUCCESS
