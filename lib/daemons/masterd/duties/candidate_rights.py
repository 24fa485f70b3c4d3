"""Candidates in place of dead ones, and rights of those that did not answer.

The job that marks a dead node offline must not wait for jobs of other nodes, so it
promotes none. The pool is filled here, with nodes that answer and that no job has
locked. A gap without a dead node was made by a person who demoted a candidate.

A new candidate gets the secrets of candidates, its certificate recorded, and the right
to log in to other nodes. One that was away then has no recorded certificate, which
distinguishes it. When it answers, the three steps are repeated, the record last.

A candidate may also have lost the secrets: a master whose changes are replaced later
has demoted it, or an interrupted ``gnt-node add --readd`` has emptied it. So all
candidates are asked for them every few minutes, and get what they lack; so are nodes
for SSH keys, see `ganeti.daemons.masterd.duties.login_keys`.
"""

import logging
import random
import threading
from collections.abc import Callable
from typing import Any, Final

from ganeti.base import errors
from ganeti.daemons.masterd.duties import login_keys
from ganeti.decisions.repair.node_lives import Phase
from ganeti.master.config import candidate_pool
from ganeti.master.locking import Level, Request
from ganeti.master.locking.manager import BGL
from ganeti.model import objects
from ganeti.operations import ancillary_files, base, candidate_role
from ganeti.operations.mcpu import EngineDeps

_log = logging.getLogger(__name__)

#: Seconds between looks at the configuration, which cost nothing if nobody is missing.
PERIOD_S: Final = 10.0
#: The same for changed roles, whose SSH keys are looked at.
KEYS_PERIOD_S: Final = 2.0
#: Seconds for which locks are waited for; jobs come first.
_LOCKS_S: Final = 5.0
#: The same before a promotion, and most nodes that are tried in one sweep: others do.
_PROMOTION_S: Final = 1.0
#: Seconds in which a node has to answer to be promoted.
_ANSWER_S: Final = 2.0
_MAX_TRIED: Final = 8
#: Seconds until a candidate that had its secrets is asked for them again, and one that
#: did not answer.
LOOK_S: Final = 300.0
AWAY_S: Final = 60.0
_OWNER: Final = "candidate-rights"


class CandidateRights:
    """Repeats the admission of candidates in one thread, from `start` to `stop`."""

    def __init__(self, deps: EngineDeps) -> None:
        """Prepare; ``deps`` are those of the master daemon."""
        self._deps = deps
        #: Monotonic time of the next look for the secrets, by UUID.
        self._looks: dict[str, float] = {}
        self._keys = login_keys.LoginKeys(deps, self._context, self._locked)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=_OWNER, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further admission; a call under way ends by itself."""
        self._stopping.set()

    def _run(self) -> None:
        count = 0
        while not self._deps.clock.wait(self._stopping, KEYS_PERIOD_S):
            count += 1
            try:
                if count % round(PERIOD_S / KEYS_PERIOD_S):
                    self._keys.sweep()
                else:
                    self.sweep()
            except errors.GenericError as err:
                _log.error("rights of candidates: %s", err)
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("rights of candidates")

    def sweep(self) -> None:
        """Fill the pool; admit candidates without a certificate; give lost secrets."""
        self._fill_pool()
        for node in unrecorded(self._deps.config.snapshot()):
            if not self._stopping.is_set():
                self._locked(node.uuid, self._admit)
        now = self._deps.clock.monotonic()
        for node in recorded(self._deps.config.snapshot()):
            if self._stopping.is_set() or now < self._looks.get(node.uuid, now):
                continue
            is_lacking = ancillary_files.lacks_secrets(self._context(), node.uuid)
            self._looks[node.uuid] = now + (AWAY_S if is_lacking is None else LOOK_S)
            if is_lacking:
                self._locked(node.uuid, self._restore)
        if not self._stopping.is_set():
            self._keys.sweep()

    def _fill_pool(self) -> None:
        """Promote nodes in place of dead ones until the pool is full.

        Few are tried in one sweep.
        """
        snapshot = self._deps.config.snapshot()
        if not (candidate_pool.missing(snapshot) and self._has_dead(snapshot)):
            return
        eligible = candidate_pool.promotable(snapshot)
        for uuid in random.sample(eligible, min(_MAX_TRIED, len(eligible))):
            if self._stopping.is_set():
                return
            self._locked(uuid, self._promote, _PROMOTION_S)
            if not candidate_pool.missing(self._deps.config.snapshot()):
                return

    def _has_dead(self, snapshot: objects.Snapshot) -> bool:
        """Return whether a node is offline that was fenced within the last hour."""
        state = self._deps.config.node_deaths.state()
        names = {name for _time, name in state.fenced}
        names.update(d.name for d in state.deaths if d.phase is Phase.OFFLINE)
        return bool(names) and any(
            node.offline and node.name in names for node in snapshot.nodes.values()
        )

    def _promote(self, uuid: str) -> None:
        # One that is dead, too, would only take from the majority of the candidates.
        if self._deps.rpc.call("version", [uuid], timeout_s=_ANSWER_S)[uuid].failed:
            return
        with self._deps.config.edit(_OWNER) as edit:
            promoted = edit.promote_if_missing(uuid)
        if promoted is not None:
            _log.info("node %s is a master candidate now", promoted.name)
            candidate_role.admit(self._context(), promoted)

    def _locked(
        self, uuid: str, act: Callable[[str], None], limit_s: float = _LOCKS_S
    ) -> bool:
        """Act on a node, unless a job has it; return whether it was done."""
        locks = self._deps.locks
        try:
            for level, name in ((Level.CLUSTER, BGL), (Level.NODE, uuid)):
                request = Request(level, [name], shared=level is Level.CLUSTER)
                if locks.acquire(request, limit_s) is None:
                    return False
            act(uuid)
            return True
        finally:
            locks.release_all()

    def _admit(self, uuid: str) -> None:
        for node in unrecorded(self._deps.config.snapshot()):
            if node.uuid == uuid and candidate_role.admit_again(self._context(), node):
                _log.info("node %s has the rights of a master candidate now", node.name)
                self._looks[uuid] = self._deps.clock.monotonic() + LOOK_S

    def _restore(self, uuid: str) -> None:
        for node in recorded(self._deps.config.snapshot()):
            if node.uuid != uuid:
                continue
            _log.warning("node %s lacks secrets of master candidates", node.name)
            if ancillary_files.send_secrets(self._context(), uuid):
                _log.info("node %s has the secrets of master candidates", node.name)
            else:
                self._looks[uuid] = self._deps.clock.monotonic() + AWAY_S

    def _context(self) -> base.Context:
        return base.view(
            base.Context,
            self._deps,
            log=_Log(),
            locks=_NoLocks(),
            owner=_OWNER,
            pause=self._pause,
            resumption=None,
            save_resumption=lambda _state: None,
        )

    def _pause(self, seconds: float) -> None:
        self._deps.clock.wait(self._stopping, seconds)


def unrecorded(snapshot: objects.Snapshot) -> list[objects.Node]:
    """Return the online candidates without a recorded certificate, sorted by name."""
    known = snapshot.cluster.candidate_certs
    return [node for node in _candidates(snapshot) if node.uuid not in known]


def recorded(snapshot: objects.Snapshot) -> list[objects.Node]:
    """Return the other online candidates without the master, sorted by name."""
    known, master = snapshot.cluster.candidate_certs, snapshot.cluster.master_node
    return [
        node
        for node in _candidates(snapshot)
        if node.uuid in known and node.uuid != master
    ]


def _candidates(snapshot: objects.Snapshot) -> list[objects.Node]:
    return sorted(
        (
            node
            for node in snapshot.nodes.values()
            if node.master_candidate and not node.offline
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
