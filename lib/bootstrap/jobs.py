"""Submission of a job over LUXI, and waiting: for its end, or for a condition."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.options import Feedback
from ganeti.model import opcodes
from ganeti.protocols import luxi

_DEFAULT_WFJC_TIMEOUT: Final = 60

#: Status of jobs that have ended.
ENDED: Final = frozenset({"success", "error", "canceled"})
_FIELDS: Final = ("status", "opstatus", "opresult")


def run(
    paths: Paths,
    ops: Sequence[opcodes.Opcode],
    feedback: Feedback,
    *,
    to_drained: bool = False,
) -> list[Any]:
    """Submit a job, wait for its end and return the results of its opcodes.

    Args:
        paths: of this node, the master.
        ops: the opcodes of the job.
        feedback: called with each entry of the job's log.
        to_drained: submit it also if the queue is drained.

    Raises:
        GenericError: the error of the opcode that failed.
    """
    method = "SubmitJobToDrainedQueue" if to_drained else "SubmitJob"
    with luxi.Client.of_node(paths) as client:
        job = client.call(method, [[opcodes.encode(op) for op in ops]])
        return wait(client, int(job), feedback)


def wait(client: luxi.Client, job: int, feedback: Feedback) -> list[Any]:
    """Wait for a job's end and return the results of its opcodes.

    Raises:
        GenericError: the error of the opcode that failed.
    """
    values: list[Any] | None = None
    serial: int | None = None
    while values is None or values[0] not in ENDED:
        limit = _DEFAULT_WFJC_TIMEOUT
        answer = client.call(
            "WaitForJobChange", [job, list(_FIELDS), values, serial, limit]
        )
        if answer == "nochange":
            continue
        values, entries = answer
        if values[0] is None:
            raise errors.JobLost(f"job {job}: no longer in the job queue")
        for entry in entries:
            serial = max(serial or 0, entry[0])
            feedback(str(entry[3]))
    _raise_failure(job, values)
    return list(values[2])


def verify_cluster(paths: Paths, feedback: Feedback) -> bool:
    """Run the jobs of ``gnt-cluster verify``; return whether all is well."""
    is_good = True
    ((rows),) = run(paths, [opcodes.ClusterVerify()], feedback)
    with luxi.Client.of_node(paths) as client:
        for is_submitted, number in rows["jobs"]:
            if not is_submitted:
                raise errors.OpExecError(f"the cluster cannot be verified: {number}")
            results = wait(client, int(number), feedback)
            is_good = is_good and all(result is True for result in results)
    return is_good


def _raise_failure(job: int, values: Sequence[Any]) -> None:
    status, op_status, results = values
    if status == "success":
        return
    for state, result in zip(op_status, results, strict=True):
        if state == "error":
            known = errors.decode(result)
            raise known if known is not None else errors.OpExecError(str(result))
    raise errors.OpExecError(f"job {job}: ended as {status}")


_FIRST_PAUSE_S: Final = 1.0
_GROWTH: Final = 1.5
_LONGEST_PAUSE_S: Final = 5.0


def wait_until(
    condition: Callable[[], bool], clock: Clock, *, timeout_s: float
) -> bool:
    """Poll a condition; return whether it became true before the timeout."""
    deadline = clock.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while not condition():
        left = deadline - clock.monotonic()
        if left <= 0:
            return False
        # Nobody sets the event: this is a sleep by a clock that can be virtual.
        clock.wait(threading.Event(), min(pause, left))
        pause = min(pause * _GROWTH, _LONGEST_PAUSE_S)
    return True
