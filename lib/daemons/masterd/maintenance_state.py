"""The state of the maintenance daemon in the store.

The state is a document of the store. A round is one commit: the new state, and the jobs
that it submits. So a round happens as a whole or not at all, whoever dies, and a master
that has been deposed can do neither.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.daemons.masterd import journal_state
from ganeti.decisions.repair import rounds
from ganeti.decisions.repair.incidents import Incident, IncidentState, MaintenanceState
from ganeti.decisions.repair.journal import Round
from ganeti.master.jqueue import JobQueue
from ganeti.master.jqueue.effects import META, Document
from ganeti.model import opcodes

KEY: Final = "maintenance"


class RoundJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job of a round; see `ganeti.decisions.repair.rounds.Job`."""

    ops: list[Any]
    incident: str
    is_tag: bool = False


class Keeper:
    """The only writer of the state. For use by many threads; calls may block."""

    def __init__(
        self, store: store.Store, clock: Clock, journal: journal_state.Keeper
    ) -> None:
        self._store = store
        self._clock = clock
        self._journal = journal
        self._lock = threading.Lock()

    def state(self) -> MaintenanceState:
        """Return the present state.

        Raises:
            ConfigurationError: it cannot be read.
        """
        return store.read_typed(
            self._store, META, KEY, MaintenanceState, "maintenance state"
        )

    def change(
        self,
        queue: JobQueue,
        serial: int,
        state: MaintenanceState,
        jobs: Sequence[RoundJob] = (),
        entry: Round | None = None,
    ) -> MaintenanceState:
        """Replace the state and submit jobs, in one commit; return the new state.

        The commit contains the entry of the journal, with the ids of the jobs.

        Raises:
            OpPrereqError: the state has changed since ``serial``, or an opcode is
                malformed; nothing was done.
            JobQueueError: the jobs were refused; nothing was done.
        """
        decoded = [[opcodes.decode(op) for op in job.ops] for job in jobs]
        of_incidents = [(job.incident, job.is_tag) for job in jobs]
        with self._lock, self._journal.writing() as batch:
            present = self.state()
            if present.serial_no != serial:
                raise errors.OpPrereqError(
                    f"the maintenance state has serial {present.serial_no} by now, the"
                    f" change is based on {serial}",
                    ecodes.ECODE_STATE,
                )
            now = self._clock.time()
            new = msgspec.structs.replace(
                state, serial_no=serial + 1, ctime=present.ctime or now, mtime=now
            )

            def documents(ids: Sequence[int]) -> list[Document]:
                nonlocal new
                new = rounds.with_jobs(new, of_incidents, ids)
                stored = Document(META, KEY, msgspec.json.encode(new))
                if entry is None:
                    return [stored]
                return [stored, *_documents(batch.put(entry.with_jobs(ids)))]

            queue.submit_all_later(decoded, documents, to_drained=not decoded).result()
            return new

    def edit(self, queue: JobQueue, uuid: str, *, cancel: bool) -> str:
        """Cancel an incident, or remove it; return its node.

        Raises:
            OpPrereqError: there is no such incident, or it has ended.
        """
        while True:
            present = self.state()
            item = next((i for i in present.incidents if i.uuid == uuid), None)
            if item is None:
                raise errors.OpPrereqError(
                    f"incident {uuid}: does not exist; the status page of the"
                    " maintenance daemon lists incidents",
                    ecodes.ECODE_NOENT,
                )
            kept = [i for i in present.incidents if i is not item]
            if cancel:
                kept.insert(0, _canceled(item, self._clock.time()))
            state = msgspec.structs.replace(present, incidents=tuple(kept))
            try:
                self.change(queue, present.serial_no, state)
            except errors.OpPrereqError as err:
                # A round came in between; the incident may have another state now.
                if err.args[1:] != (ecodes.ECODE_STATE,):
                    raise
                continue
            return item.node


def _documents(changes: Sequence[store.Document]) -> list[Document]:
    """Return documents of the store as those of the queue."""
    return [Document(*change) for change in changes]


def _canceled(item: Incident, now: float) -> Incident:
    try:
        return item.entered(IncidentState.CANCELED, now)
    except ValueError as err:
        raise errors.OpPrereqError(
            f"incident {item.uuid}: is {item.state} and cannot be canceled; remove the"
            f" tag {item.tag} of its node to acknowledge it",
            ecodes.ECODE_INVAL,
        ) from err
