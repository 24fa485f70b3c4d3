"""Requests of clients to jobs and to the queue: cancel, change priority, drain.

Every answer is sent when its effect is durable.
"""

from concurrent.futures import Future

from ganeti.base import errors
from ganeti.base.constants import ecodes, jobqueue
from ganeti.decisions.jobs import transitions
from ganeti.decisions.jobs.entry import Entry, Place
from ganeti.decisions.jobs.state import Status
from ganeti.master.jqueue.core import Core
from ganeti.master.jqueue.documents import DRAIN, META, SERIAL, Document
from ganeti.master.jqueue.submitting import settle

#: Whether the request succeeded, and a text for the user.
Answer = tuple[bool, str]


def cancel(core: Core, job_id: int, *, kill: bool) -> Future[Answer]:
    """See `JobQueue.cancel_later`."""
    future: Future[Answer] = Future()
    with core.transaction():
        entry = core.live.get(job_id)
        if entry is None or entry.job.is_final:
            known = entry is not None or job_id in core.ended
            why = "is no longer in the queue" if known else "not found"
            answer = (False, f"Job {job_id} {why}")
        elif entry.job.status in (Status.QUEUED, Status.WAITING):
            _cancel_locked(core, entry, future)
            return future
        elif entry.job.status is Status.CANCELING:
            answer = (True, f"Job {job_id} will be canceled")
        else:
            answer = _kill_locked(core, entry, kill=kill)
        core.later_locked(lambda: settle(future, answer, None))
    return future


def _cancel_locked(core: Core, entry: Entry, future: Future[Answer]) -> None:
    is_later = entry.job.status is Status.WAITING and entry.place is Place.WORKING
    text = "will be canceled" if is_later else "canceled"
    answer = (True, f"Job {entry.job.id} {text}")
    core.cancel_locked(entry, lambda error: settle(future, answer, error))


def _kill_locked(core: Core, entry: Entry, *, kill: bool) -> Answer:
    if not kill:
        return False, f"Job {entry.job.id} is running, it cannot be canceled"
    entry.must_die = True
    if entry.kill is not None:
        core.later_locked(entry.kill)
    return True, f"Job {entry.job.id} is running and will end as soon as possible"


def change_priority(core: Core, job_id: int, priority: int) -> Future[Answer]:
    """See `JobQueue.change_priority_later`."""
    lowest, highest = jobqueue.OP_PRIO_LOWEST, jobqueue.OP_PRIO_HIGHEST
    if not highest <= priority <= lowest:
        raise errors.OpPrereqError(
            f"job {job_id}: priority {priority} is not from {highest} to {lowest}",
            ecodes.ECODE_INVAL,
        )
    future: Future[Answer] = Future()
    with core.transaction():
        entry = core.live.get(job_id)
        refusal = _refusal(core, job_id, entry)
        if entry is None or refusal is not None:
            answer = (False, refusal or "")
            core.later_locked(lambda: settle(future, answer, None))
            return future
        core.show_locked(entry, transitions.with_priority(entry.job, priority))
        core.schedule.changed_priority(entry)
        if entry.place is Place.WORKING and entry.job.status is Status.WAITING:
            entry.must_hurry = True
            core.interrupt_locked(entry)
        text = f"Priority of the pending opcodes of job {job_id} is now {priority}"
        answer = (True, text)
        core.save_locked(entry, lambda error: settle(future, answer, error))
    return future


def _refusal(core: Core, job_id: int, entry: Entry | None) -> str | None:
    if entry is None:
        known = job_id in core.ended
        return f"Job {job_id} {'is finished' if known else 'not found'}"
    if entry.job.is_final:
        return f"Job {job_id} is finished"
    if entry.job.status is Status.CANCELING:
        return f"Job {job_id} is being canceled"
    pending = (Status.QUEUED, Status.WAITING)
    if not any(op.status in pending for op in entry.job.ops):
        return f"Job {job_id} has no pending opcodes"
    return None


def leave_out(core: Core, job_id: int) -> Future[None]:
    """See `JobQueue.leave_out`."""
    future: Future[None] = Future()
    with core.transaction():
        core.serial = max(core.serial, job_id)
        document = Document(META, SERIAL, b"%d" % core.serial)
        core.commit_locked([document], lambda error: settle(future, None, error))
    return future


def set_drain(core: Core, flag: bool) -> Future[bool]:
    """See `JobQueue.set_drain_later`."""
    future: Future[bool] = Future()
    with core.transaction():
        before, core.is_drained = core.is_drained, flag

        def on_done(error: BaseException | None) -> None:
            if error is not None:
                core.is_drained = before
            settle(future, flag, error)

        document = Document(META, DRAIN, b"1" if flag else None)
        core.commit_locked([document], on_done)
    return future
