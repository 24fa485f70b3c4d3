"""The state of deaths of nodes in the store: the only writer.

A step is one commit: the new state, the jobs that it submits, and the entry of the
journal. So a step happens as a whole or not at all, and a deposed master can do
neither.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.daemons.masterd import journal_state
from ganeti.decisions.repair import node_death
from ganeti.decisions.repair.journal import Round
from ganeti.decisions.repair.node_lives import DeathJob, DeathState
from ganeti.master.config.node_deaths import KEY, TABLE, NodeDeaths
from ganeti.master.jqueue import JobQueue
from ganeti.master.jqueue.documents import Document
from ganeti.model import opcodes

#: Most deaths that are remembered at once; no program should decide about more.
_MAX_DEATHS: Final = 200


class Keeper:
    """The only writer of the state. For use by many threads; calls may block."""

    def __init__(self, reader: NodeDeaths, journal: journal_state.Keeper) -> None:
        self._reader = reader
        self._journal = journal
        self._lock = threading.Lock()

    def change(
        self,
        queue: JobQueue,
        serial: int,
        state: DeathState,
        jobs: Sequence[DeathJob],
        entry: Round,
    ) -> DeathState:
        """Replace the state and submit jobs, in one commit; return the new state.

        Raises:
            OpPrereqError: the state has changed since ``serial``, an opcode is
                malformed, or a job is for a node that the state does not name;
                nothing was done.
            JobQueueError: the jobs were refused; nothing was done.
        """
        decoded = [[opcodes.decode(op) for op in job.ops] for job in jobs]
        with self._lock, self._journal.writing() as batch:
            present = self._reader.state()
            if present.serial_no != serial:
                raise errors.OpPrereqError(
                    f"deaths of nodes have the serial {present.serial_no} by now, the"
                    f" change is based on {serial}",
                    ecodes.ECODE_STATE,
                )
            _check(state, jobs, present.marked)
            new = msgspec.structs.replace(state, serial_no=serial + 1)

            def documents(ids: Sequence[int]) -> list[Document]:
                nonlocal new
                new = node_death.with_jobs(new, tuple(jobs), tuple(ids))
                rows = batch.put(entry.with_jobs(ids))
                stored: list[Any] = [(TABLE, KEY, msgspec.json.encode(new)), *rows]
                return [Document(*row) for row in stored]

            # A drained queue is no reason to leave a dead node alone.
            queue.submit_all_later(decoded, documents, to_drained=True).result()
            return new


def _check(state: DeathState, jobs: Sequence[DeathJob], marked: Sequence[str]) -> None:
    """Refuse a state that is too large, and jobs for nodes that it does not name.

    A node that was marked and is back has a job when it leaves the state.
    """
    if len(state.deaths) > _MAX_DEATHS:
        raise errors.OpPrereqError(
            f"deaths of nodes: wanted at most {_MAX_DEATHS}, found {len(state.deaths)}",
            ecodes.ECODE_INVAL,
        )
    wanted = sorted(death.node for death in state.deaths if death.job == -1)
    back = set(marked).difference(state.marked, wanted)
    given = sorted(job.node for job in jobs if job.node not in back)
    if wanted != given:
        raise errors.OpPrereqError(
            f"deaths of nodes: wanted one job for each of {wanted}, found {given}",
            ecodes.ECODE_INVAL,
        )
