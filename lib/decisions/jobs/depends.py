"""Dependencies between jobs: pure checks of ``depends``.

A job can wait only for jobs submitted before it, so there are no cycles.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.decisions.jobs.state import Status
from ganeti.model import opcodes

#: The state of a job, live or archived; None if it is unknown.
Lookup = Callable[[int], Status | None]


class Verdict(NamedTuple):
    """The present state of an opcode's dependencies.

    Attributes:
        waits_for: jobs that must end first.
        is_canceled: a dependency was canceled, so this job is canceled too.
        error: the error of the opcode if a dependency failed.
    """

    waits_for: tuple[int, ...] = ()
    is_canceled: bool = False
    error: errors.GenericError | None = None


def resolve(job_id: int, ops: Sequence[opcodes.Opcode]) -> list[opcodes.Opcode]:
    """Return the opcodes with dependencies as absolute job ids.

    Relative ids count back from the job's own id: -1 is the previous job.

    Raises:
        OpPrereqError: a relative id points before the first job.
    """
    return [_resolve_op(job_id, op) for op in ops]


def _resolve_op(job_id: int, op: opcodes.Opcode) -> opcodes.Opcode:
    if not op.depends:
        return op
    resolved = []
    for given, allowed in op.depends:
        number = int(given)
        target = number if number >= 0 else job_id + number
        if target < 1:
            raise errors.OpPrereqError(
                f"job dependency {given} of job {job_id}: there is no such job",
                ecodes.ECODE_INVAL,
            )
        resolved.append((target, list(allowed)))
    return msgspec.structs.replace(op, depends=resolved)


def targets(job_id: int, ops: Sequence[opcodes.Opcode]) -> set[int]:
    """Return the earlier jobs that must end before the job may start."""
    jobs = {int(dep) for op in ops for dep, _ in op.depends or ()}
    return {dep for dep in jobs if dep < job_id}


def check(job_id: int, op: opcodes.Opcode, lookup: Lookup) -> Verdict:
    """Return whether the dependencies of an opcode allow its start."""
    waits: list[int] = []
    for target, allowed in op.depends or ():
        dep = int(target)
        if dep >= job_id:
            which = "itself" if dep == job_id else f"the later job {dep}"
            return _refused(f"job {job_id} depends on {which}")
        status = lookup(dep)
        if status is None:
            return _refused(f"job {job_id} depends on job {dep}, which does not exist")
        if not status.is_final:
            waits.append(dep)
        elif status is Status.CANCELED and status.value not in allowed:
            return Verdict(is_canceled=True)
        elif allowed and status.value not in allowed:
            return _refused(
                f"job {job_id} depends on job {dep} ending as"
                f" {' or '.join(allowed)}, it ended as {status}"
            )
    return Verdict(waits_for=tuple(waits))


def _refused(text: str) -> Verdict:
    return Verdict(error=errors.OpPrereqError(text, ecodes.ECODE_STATE))
