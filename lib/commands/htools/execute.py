"""Execution of a plan: sets of jobs, submitted and waited for one after another.

After SIGINT the running set ends and the rest is left out; SIGTERM ends the program at
once. Submitted jobs continue in both cases.
"""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import jobqueue, versions
from ganeti.commands.htools import sources
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.protocols import luxi

#: Exit code after SIGTERM.
TERMINATED: Final = 2
#: Seconds that one call waits for a change of a job.
_WAIT_S: Final = 20
#: Calls about jobs are repeated if the master daemon restarts: after 5, 10 and 15
#: seconds.
_RETRIES: Final = 3
_FINAL: Final = frozenset({"success", "error", "canceled"})
_PRIORITIES: Final = {
    "low": jobqueue.OP_PRIO_LOW,
    "normal": jobqueue.OP_PRIO_NORMAL,
    "high": jobqueue.OP_PRIO_HIGH,
}


class Job(msgspec.Struct, frozen=True):
    """Name of the object, opcodes in wire form, and plural of the object's kind."""

    label: str
    ops: Sequence[dict[str, Any]]
    noun: str = "instances"


class _Terminated(BaseException):
    """SIGTERM was received."""


class _Stop:
    """Handlers of SIGINT and SIGTERM; ``wanted`` is set after SIGINT."""

    def __init__(self) -> None:
        self.wanted = False

    def request(self, _number: int, _frame: object) -> None:
        self.wanted = True
        sys.stderr.write(
            "Cancel request registered, will exit at the end of the current job"
            " set...\n"
        )

    def terminate(self, _number: int, _frame: object) -> None:
        raise _Terminated


@contextmanager
def _signals() -> Iterator[_Stop]:
    """Handle both signals during a block."""
    stop = _Stop()
    before = (
        signal.signal(signal.SIGINT, stop.request),
        signal.signal(signal.SIGTERM, stop.terminate),
    )
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def run(
    program: str,
    parsed: ParsedOptions,
    sets: Sequence[Sequence[Job]],
    *,
    comment: str = "rebalancing",
) -> int:
    """Submit sets of jobs and wait for each; return the exit code.

    Args:
        program: named in the jobs as their origin.
        parsed: the LUXI socket (``L``), and ``reason`` and ``prio`` where the program
            has these options.
        sets: the jobs of a set run at the same time, the sets one after another.
        comment: purpose of the jobs.

    Raises:
        ProgramError: a job was refused or failed; later sets are left out.
        GenericError: the master daemon stopped answering.
        DataError: an answer has a wrong form.
    """
    sys.stdout.flush()
    with _signals() as stop, sources.connect(parsed["L"], retries=_RETRIES) as client:
        try:
            for number, members in enumerate(sets):
                if stop.wanted:
                    left = len(sets) - number
                    print(f"Exiting early due to user request, {left} jobset(s) left.")
                    return 0
                _run_set(client, members, _common(program, parsed, comment))
        except _Terminated:
            sys.stderr.write("Terminated; submitted jobs continue.\n")
            return TERMINATED
    return 0


def _common(program: str, parsed: ParsedOptions, comment: str) -> dict[str, Any]:
    """Return the parameters of all opcodes."""
    trail = [[program, parsed.get("reason") or "", time.time_ns()]]
    common: dict[str, Any] = {
        "comment": f"{comment} via {program} {versions.RELEASE_VERSION}",
        "reason": trail,
    }
    if parsed.get("prio"):
        common["priority"] = _PRIORITIES[parsed["prio"]]
    return common


def _run_set(
    client: luxi.Client, members: Sequence[Job], common: dict[str, Any]
) -> None:
    labels = ",".join(job.label for job in members)
    print(f"Executing jobset for {members[0].noun} {labels}")
    ops = [[{**op, **common} for op in job.ops] for job in members]
    method = "SubmitManyJobs"
    answers = client.call(method, [ops])
    pairs = _is_list(answers) and all(_is_list(row, 2) for row in answers)
    if not pairs or len(answers) != len(members):
        raise _malformed(method, f"{len(members)} pairs", answers)
    ids = [str(value) for ok, value in answers if ok]
    print(f"Got job IDs {','.join(ids)}", flush=True)
    failed = [
        f"{job.label}: not accepted: {value}"
        for job, (ok, value) in zip(members, answers, strict=True)
        if not ok
    ]
    for job, (ok, value) in zip(members, answers, strict=True):
        if ok:
            failed += wait(client, job, value)
    if failed:
        raise ProgramError("Not all jobs completed successfully: " + "; ".join(failed))


def wait(client: luxi.Client, job: Job, job_id: Any) -> list[str]:
    """Wait until a job ends; return its errors."""
    fields = ["status", "opstatus", "opresult"]
    gone = [f"{job.label}: job {job_id} does not exist any more"]
    previous: Any = None
    serial: Any = None
    while True:
        args = [job_id, ["status"], previous, serial, _WAIT_S]
        try:
            answer = client.call("WaitForJobChange", args)
        except errors.JobLost:
            return gone
        if answer == "nochange":
            continue
        if answer is None:
            return gone
        previous, serial = _progress(answer, serial)
        if previous[0] is None:
            return gone
        if previous[0] in _FINAL:
            break
    if previous[0] == "success":
        return []
    rows = client.call("QueryJobs", [[job_id], fields])
    if not (_is_list(rows, 1) and (not rows[0] or _is_list(rows[0], len(fields)))):
        raise _malformed("QueryJobs", "one row", rows)
    return [f"{job.label}: job {job_id}: {_row_text(rows[0] or previous)}"]


def _progress(answer: Any, serial: int | None) -> tuple[list[Any], int]:
    """Return the status of a job, in a list, and the serial number of its log."""
    method, wanted = "WaitForJobChange", "a status and log entries"
    if not (_is_list(answer, 2) and _is_list(answer[0], 1)):
        raise _malformed(method, wanted, answer)
    status, entries = answer
    numbers = [serial or 0]
    for entry in entries if _is_list(entries) else ():
        if not (_is_list(entry) and entry and isinstance(entry[0], int)):
            raise _malformed(method, wanted, answer)
        numbers.append(entry[0])
    return status, max(numbers)


def _is_list(value: Any, count: int | None = None) -> bool:
    return isinstance(value, list | tuple) and count in {None, len(value)}


def _malformed(method: str, wanted: str, actual: Any) -> DataError:
    """Return the error about an answer with a wrong form."""
    return DataError(f"LUXI: {method}: wanted {wanted}, found {actual!r:.80}")


def _row_text(row: Sequence[Any]) -> str:
    """Return the error, or the status, of a job that did not succeed."""
    rows = len(row) > 1 and _is_list(row[1]) and _is_list(row[2])
    for status, result in zip(row[1], row[2], strict=False) if rows else ():
        if status == "error":
            text = result[1][0] if _is_error(result) else result
            return f"error: {text}"
    return str(row[0])


def _is_error(result: Any) -> bool:
    """Return whether a result is an encoded error: class and arguments."""
    return isinstance(result, list) and len(result) == 2 and bool(result[1])
