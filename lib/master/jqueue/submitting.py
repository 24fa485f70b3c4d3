"""Submission of jobs: ids, reasons, dependencies, the first commit.

A client gets an id when the job and the serial are durable; submissions of many clients
share a commit. If a job in a list is refused because of its dependencies or a full
queue, it uses up an id and the other jobs are accepted. An invalid priority makes the
whole request malformed.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes, jobqueue
from ganeti.decisions.jobs import records, schedule, transitions
from ganeti.decisions.jobs.entry import Entry
from ganeti.decisions.jobs.records import Timestamp
from ganeti.master.jqueue.core import Core
from ganeti.master.jqueue.effects import JOBS, META, SERIAL, Document
from ganeti.model import opcodes

#: Allowed when submitting.
_OP_PRIO_SUBMIT_VALID: Final = (-10, 0, 10)

Ops = Sequence[opcodes.Opcode]
#: Per job: true and its id, or false and the reason.
Answers = list[tuple[bool, int | str]]

T = TypeVar("T")
_NANO: Final = 1_000_000_000


class Submitter:
    """Maker of jobs from opcodes."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def submit(self, ops: Ops, *, to_drained: bool) -> Future[int]:
        """Accept one job; the future has its id.

        Raises:
            JobQueueDrainError, JobQueueFull, JobQueueError: refused.
            OpPrereqError: no opcodes, or an invalid priority or dependency.
        """
        core = self._core
        future: Future[int] = Future()
        _check_priorities(ops)
        with core.transaction():
            self._check_open_locked(to_drained=to_drained)
            self._check_room_locked()
            entry = self._make(core.serial + 1, ops, core.now())
            self._take_share_locked(entry)
            core.serial += 1
            self._commit_locked(
                [entry],
                lambda error: settle(future, entry.job.id, error),
            )
        return future

    def submit_many(self, jobs: Sequence[Ops], *, to_drained: bool) -> Future[Answers]:
        """Accept several jobs with consecutive ids; the future has the answers.

        Raises:
            JobQueueDrainError, JobQueueError: all refused.
            OpPrereqError: all refused, because of an invalid priority.
        """
        core = self._core
        future: Future[Answers] = Future()
        for ops in jobs:
            _check_priorities(ops)
        with core.transaction():
            self._check_open_locked(to_drained=to_drained)
            entries: list[Entry] = []
            answers: Answers = []
            for ops in jobs:
                # Refused jobs use up an id, too: relative dependencies of later jobs
                # count positions in the request.
                core.serial += 1
                try:
                    self._check_room_locked(len(entries))
                    entry = self._make(core.serial, ops, core.now())
                    self._take_share_locked(entry)
                    entries.append(entry)
                    answers.append((True, core.serial))
                except errors.GenericError as err:
                    text = str(err.args[0]) if err.args else type(err).__name__
                    answers.append((False, text))
            self._commit_locked(entries, lambda error: settle(future, answers, error))
        return future

    def submit_all(
        self,
        jobs: Sequence[Ops],
        also: Callable[[Sequence[int]], Sequence[Document]],
        *,
        to_drained: bool,
    ) -> Future[list[int]]:
        """Accept all jobs and further documents in one commit; the future has the ids.

        Raises:
            JobQueueDrainError, JobQueueFull, JobQueueError: refused.
            OpPrereqError: no opcodes, or an invalid priority or dependency.
        """
        core = self._core
        future: Future[list[int]] = Future()
        for ops in jobs:
            _check_priorities(ops)
        with core.transaction():
            self._check_open_locked(to_drained=to_drained)
            self._check_room_locked(len(jobs) - 1)
            entries = [
                self._make(core.serial + place, ops, core.now())
                for place, ops in enumerate(jobs, start=1)
            ]
            core.serial += len(entries)
            for entry in entries:
                core.remote.add(entry.requester, entry.size)
            ids = [entry.job.id for entry in entries]
            self._commit_locked(
                entries, lambda error: settle(future, ids, error), also(ids)
            )
        return future

    def _check_open_locked(self, *, to_drained: bool) -> None:
        if self._core.is_stopping:
            raise errors.JobQueueError("job queue is shutting down")
        if self._core.is_drained and not to_drained:
            raise errors.JobQueueDrainError("job queue is drained, refusing jobs")

    def _check_room_locked(self, more: int = 0) -> None:
        core = self._core
        if len(core.live) + core.arriving + more >= core.settings.hard_limit:
            raise errors.JobQueueFull

    def _take_share_locked(self, entry: Entry) -> None:
        """Count a job as one of its requester; refuse it without room for it."""
        self._core.remote.check(entry.requester, entry.size)
        self._core.remote.add(entry.requester, entry.size)

    def _make(self, job_id: int, ops: Ops, now: Timestamp) -> Entry:
        if not ops:
            raise errors.OpPrereqError(
                "a job needs at least one opcode", ecodes.ECODE_INVAL
            )
        when = now[0] * _NANO + now[1] * 1000
        complete = [
            _with_reason(op, job_id, index, when)
            for index, op in enumerate(schedule.resolve_dependencies(job_id, ops))
        ]
        return Entry(transitions.new_job(job_id, complete, now), complete)

    def _commit_locked(
        self,
        entries: list[Entry],
        on_done: Callable[[BaseException | None], None],
        also: Sequence[Document] = (),
    ) -> None:
        core = self._core
        # Counted against the limit until the commit ends: else many clients at once
        # could pass the check before any of their jobs is counted.
        core.arriving += len(entries)
        observer = core.settings.observer
        jobs = [entry.job for entry in entries]
        note = None if observer is None else observer.submitted(jobs)
        documents = [
            Document(JOBS, str(entry.job.id), records.encode_job(entry.job))
            for entry in entries
        ]
        documents += [Document(META, SERIAL, b"%d" % core.serial), *also]

        def done(error: BaseException | None) -> None:
            with core.transaction():
                core.arriving -= len(entries)
                for entry in entries:
                    core.remote.add(entry.requester, entry.size, -1)
                # A job is acknowledged, and may run, only when it is on disk.
                if error is None:
                    for entry in entries:
                        core.admit_locked(entry)
            if note is not None and error is None:
                note()
            on_done(error)

        core.documents.commit_locked(documents, done)


def _check_priorities(ops: Ops) -> None:
    for op in ops:
        if op.priority not in _OP_PRIO_SUBMIT_VALID:
            allowed = ", ".join(str(p) for p in _OP_PRIO_SUBMIT_VALID)
            raise errors.OpPrereqError(
                f"{op.summary()}: priority {op.priority} cannot be submitted, wanted"
                f" one of {allowed}",
                ecodes.ECODE_INVAL,
            )


def _with_reason(
    op: opcodes.Opcode, job_id: int, index: int, when: int
) -> opcodes.Opcode:
    name = op.op_id().removeprefix("OP_").lower()
    source = f"{jobqueue.OPCODE_REASON_SRC_OPCODE}:{name}"
    reason = [*op.reason, (source, f"job={job_id};index={index}", when)]
    return msgspec.structs.replace(op, reason=reason)


def settle(future: Future[T], value: T, error: BaseException | None) -> None:
    """Resolve a future with its value or the error, unless it was canceled."""
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
