"""Rights of candidates that did not answer when they became ones.

A new candidate gets its certificate recorded, the secrets of candidates, and the right
to log in to other nodes. One that was away then has no recorded certificate, which
distinguishes it. When it answers, the three steps are repeated, the record last.
"""

import logging
import threading
from typing import Any, Final

from ganeti import errors, objects
from ganeti.cmdlib import base, candidate_role
from ganeti.locking import Level, Request
from ganeti.locking.manager import BGL
from ganeti.mcpu import EngineDeps

_log = logging.getLogger(__name__)

#: Seconds between looks at the configuration, which cost nothing if nobody is missing.
PERIOD_S: Final = 10.0
#: Seconds for which locks are waited for; jobs come first.
_LOCKS_S: Final = 5.0
_OWNER: Final = "candidate-rights"


class CandidateRights:
    """Repeats the admission of candidates in one thread, from `start` to `stop`."""

    def __init__(self, deps: EngineDeps) -> None:
        """Prepare; ``deps`` are those of the master daemon."""
        self._deps = deps
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=_OWNER, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further admission; a call under way ends by itself."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._deps.clock.wait(self._stopping, PERIOD_S):
            try:
                self.sweep()
            except errors.GenericError as err:
                _log.error("rights of candidates: %s", err)
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("rights of candidates")

    def sweep(self) -> None:
        """Admit the candidates that answer and have no recorded certificate."""
        for node in unrecorded(self._deps.config.snapshot()):
            if not self._stopping.is_set():
                self._admit(node.uuid)

    def _admit(self, uuid: str) -> None:
        """Admit a node, unless a job has it or its role has changed."""
        locks = self._deps.locks
        try:
            for level, name in ((Level.CLUSTER, BGL), (Level.NODE, uuid)):
                request = Request(level, [name], shared=level is Level.CLUSTER)
                if locks.acquire(request, _LOCKS_S) is None:
                    return
            snapshot = self._deps.config.snapshot()
            if uuid in {node.uuid for node in unrecorded(snapshot)}:
                self._repeat(snapshot.nodes[uuid])
        finally:
            locks.release_all()

    def _repeat(self, node: objects.Node) -> None:
        ctx = base.view(
            base.Context,
            self._deps,
            log=_Log(),
            locks=_NoLocks(),
            owner=_OWNER,
            pause=self._pause,
            resumption=None,
            save_resumption=lambda _state: None,
        )
        if candidate_role.admit_again(ctx, node):
            _log.info("node %s has the rights of a master candidate now", node.name)

    def _pause(self, seconds: float) -> None:
        self._deps.clock.wait(self._stopping, seconds)


def unrecorded(snapshot: objects.Snapshot) -> list[objects.Node]:
    """Return the online candidates without a recorded certificate, sorted by name."""
    recorded = snapshot.cluster.candidate_certs
    return sorted(
        (
            node
            for uuid, node in snapshot.nodes.items()
            if node.master_candidate and not node.offline and uuid not in recorded
        ),
        key=lambda node: node.name,
    )


class _NoLocks:
    """The locks as an opcode sees them; this thread changes none."""

    def owned(self, level: Level) -> frozenset[str]:
        """Return no names."""
        del level
        return frozenset()

    def release(self, level: Level, *, keep: Any = ()) -> None:
        """Do nothing."""

    def downgrade(self, level: Level, names: Any) -> None:
        """Do nothing."""


class _Log:
    """The lines that a job would have in its log, in the log of the daemon."""

    def message(self, text: str) -> None:
        """Log a line."""
        _log.info("%s", text)

    info = message

    def warn(self, text: str, hint: str | None = None) -> None:
        """Log a warning."""
        _log.warning("%s%s", text, f"; {hint}" if hint else "")

    def step(self, number: int, total: int, text: str) -> None:
        """Log a step."""
        _log.info("STEP %d/%d %s", number, total, text)

    def entry(self, kind: str, payload: Any) -> None:
        """Log an entry of another kind."""
        _log.info("%s: %s", kind, payload)
