"""Bringing candidates up to date, and finding out whether they still are.

All that has to wait is done by one thread per candidate: questions, catching up, and
what follows a failure.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.protocols.rpc import Request, calls
from ganeti.protocols.rpc.answers import Facts
from ganeti.store import features, numbers, wire
from ganeti.store.backend import ARCHIVE_START, ARCHIVED, Backend
from ganeti.store.copies import sending
from ganeti.store.copies.candidates import Candidates, Peer, State
from ganeti.store.copies.flights import Flights
from ganeti.store.numbers import CommitSettings

_log = logging.getLogger(__name__)

#: Pauses between attempts to reach a stale candidate.
RETRY_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
#: Seconds between questions to a candidate while nothing is written: so an idle master
#: notices that it was replaced, and a lost copy is found.
IDLE_CHECK_S: Final = 5.0
#: Seconds after which the master's disk should have what a candidate has.
_DISK_S: Final = 0.01
#: Payload bytes of one call to a candidate that catches up.
CATCH_UP_BYTES: Final = 1024 * 1024

#: Advice for a candidate that follows a master which a minority elected.
_HIGHER_TERM: Final = (
    "a restart of ganeti-masterd takes a higher term, see ganeti-watcher(8)"
)

#: Done by the thread of a candidate; returns seconds to pause after it.
_Task = Callable[[Peer], float | None]


class Keeper:
    """The work of the candidates' threads, which share this object.

    The lock of `Candidates` guards what they know; no call is made with it. A thread
    calls its candidate alone, and only while `Peer.is_busy` is its own.
    """

    def __init__(
        self,
        candidates: Candidates,
        flights: Flights,
        backend: Backend,
        *,
        replicate: sending.Replicate,
        settings: CommitSettings,
        clock: clock_module.Clock,
    ) -> None:
        """Call nobody yet."""
        self._candidates = candidates
        self._lock = candidates.lock
        self._flights = flights
        self._backend = backend
        self._replicate = replicate
        self._settings = settings
        self._clock = clock

    def run(self, peer: Peer) -> None:
        """Keep a candidate up to date until it is stopped; the body of its thread."""
        try:
            self._serve(peer)
        finally:
            peer.has_ended.set()

    def _serve(self, peer: Peer) -> None:
        while True:
            with self._lock:
                # Before the decision: what happens after it wakes the thread again.
                peer.wake.clear()
                task, is_call = self._next_task_locked(peer)
            if task is None:
                return
            try:
                pause = task(peer)
            except errors.TermError as err:
                pause = self._take_refusal(peer, err)
            except errors.GenericError as err:
                pause = self._note_failure(peer, str(err))
            except Exception as err:  # noqa: BLE001 - the copy must be kept up
                _log.exception("master candidate %s", peer.name)
                pause = self._note_failure(peer, repr(err))
            if is_call:
                with self._lock:
                    peer.is_busy = False
            if pause is not None:
                self._clock.wait(peer.wake, pause)  # woken early only to stop

    def _next_task_locked(self, peer: Peer) -> tuple[_Task | None, bool]:
        """Return what the thread of a candidate does next, None to end.

        The second value is whether that is a call, or the failure of one.
        """
        if peer.failure is not None:
            return self._fail, True
        if peer.is_busy and not peer.is_handed:
            peer.is_wanted = True
            return self._await_flight, False
        peer.is_busy = peer.is_handed = False
        if peer.state is State.STOPPED:
            return None, False
        if peer.state is State.CURRENT and peer.is_due and peer.queue:
            return self._launch, False
        if peer.state is State.STALE:
            peer.is_busy = True
            return self._repair, True
        if peer.archive:
            peer.is_busy = True
            return self._copy_archive, True
        if peer.must_check:
            peer.must_check, peer.is_busy = False, True
            return self._check, True
        return self._idle, False

    def _await_flight(self, peer: Peer) -> None:
        """Wait for the answer to a flight."""
        peer.wake.wait()

    def _launch(self, peer: Peer) -> None:
        """Begin to send what is in the queue."""
        with self._lock:
            flights = self._flights.take_locked([peer])
        self._flights.begin(flights)

    def _idle(self, peer: Peer) -> None:
        """Wait for work; after some seconds without answers, that is a question."""
        since = self._clock.monotonic() - peer.heard_at
        if not self._clock.wait(peer.wake, max(0.0, IDLE_CHECK_S - since)):
            with self._lock:
                since = self._clock.monotonic() - peer.heard_at
                peer.must_check |= since >= IDLE_CHECK_S and not peer.is_busy

    def _fail(self, peer: Peer) -> None:
        """Raise the failure of a flight."""
        with self._lock:
            failure, peer.failure = peer.failure, None
        if failure is not None:
            raise failure

    def _take_refusal(self, peer: Peer, error: errors.TermError) -> float:
        """Note that a candidate follows another master; return seconds to pause.

        One candidate's answer deposes nobody: see
        `ganeti.decisions.quorum.Voters.is_deposed`.
        """
        pause = self._note_failure(peer, f"{error}; {_HIGHER_TERM}")
        with self._lock:
            peer.is_refusing = True
            refusing = {
                uuid for uuid, p in self._candidates.peers.items() if p.is_refusing
            }
            is_deposed = self._candidates.voters.is_deposed(refusing)
            if is_deposed:
                self._candidates.deposed = error
                self._candidates.settled.set()
                self._candidates.stop_locked()
            else:
                # Their answers show at once whether a majority follows another master.
                for other in self._candidates.peers.values():
                    if not other.is_refusing:
                        other.must_check = True
                        other.wake.set()
        if is_deposed and self._candidates.on_deposed is not None:
            self._candidates.on_deposed(error)
        if not is_deposed:
            peer.can_restart = self._settings.on_refusal(peer.node)
        return pause

    def _note_failure(self, peer: Peer, why: str) -> float:
        with self._lock:
            # Whoever closes the store ends the calls that are under way.
            is_news = peer.state not in (State.CURRENT, State.STOPPED)
            if peer.failures == 0 and is_news:
                _log.warning("master candidate %s cannot be used: %s", peer.name, why)
            peer.is_tried = True
            self._candidates.set_stale_locked(peer, why)
            if peer.state is not State.STOPPED:
                peer.wake.clear()
            pause = RETRY_S[min(peer.failures, len(RETRY_S) - 1)]
            peer.failures += 1
        return pause

    def _check(self, peer: Peer) -> None:
        """Look whether an idle candidate still has what it had."""
        revision = int(self._promise_of(peer)["revision"])
        if revision != peer.acked:
            raise errors.StorageError(f"wanted revision {peer.acked}, found {revision}")

    def _promise_of(self, peer: Peer) -> Mapping[str, Any]:
        """Have a candidate promise this term; return where its copy stands.

        What it has left of another cluster is replaced, whatever its term.
        """
        status = self._call(peer, calls.store_status())
        if status.get("cluster", "") not in ("", self._candidates.cluster):
            return status
        return self._call(peer, calls.store_promise(self._candidates.term))

    def _repair(self, peer: Peer) -> None:
        status = self._promise_of(peer)
        known = features.from_status(status)
        with self._lock:
            if peer.state is not State.STALE:
                return
            peer.features = known
            if missing := self._candidates.used - known:
                raise errors.StorageError(
                    f"its release does not know {', '.join(sorted(missing))}, which the"
                    " stored form uses: upgrade the software of the node"
                )
            # From here on new groups queue up, so that nothing falls between.
            peer.state = State.CATCHING_UP
            # The backend may not have this group when `_catch_up` reads there, and it
            # was sent before this candidate was receiving.
            if self._candidates.unwritten is not None:
                peer.queue.append(self._candidates.unwritten)
                self._candidates.is_sent = True
        peer.archive = _cursor(status)
        revision = self._catch_up(peer, status)
        with self._lock:
            if peer.state is not State.CATCHING_UP:
                return
            peer.state, peer.is_tried = State.CURRENT, True
            # Groups that were committed while the call ran are in the queue as well.
            while peer.queue and peer.queue[0].revision <= revision:
                peer.queue.popleft()
            peer.is_due = bool(peer.queue)
            self._candidates.note_ack_locked(peer, revision, self._clock.monotonic())
        _log.info("master candidate %s has revision %d", peer.name, revision)

    def _catch_up(self, peer: Peer, status: Mapping[str, Any]) -> int:
        """Send what a candidate lacks; return the revision that it has then."""
        revision = int(status["revision"])
        digest = bytes.fromhex(status["digest"])
        # An empty copy becomes a whole one in one transaction: it must not count for
        # an election while it has a part of what it once acknowledged.
        groups = self._backend.changes_since(revision, digest) if revision else None
        if status.get("cluster", "") == self._candidates.cluster:
            self._go_above(peer, status, is_replaced=groups is None)
        if groups is None:
            copy = self._backend.dump()
            term = self._candidates.term
            asked = calls.store_install(term, wire.encode_copy(copy))
            answer = self._call(peer, asked)
            peer.archive = ARCHIVE_START
            return int(answer["revision"])
        while groups:
            count, size = 0, 0
            while count < len(groups) and size < CATCH_UP_BYTES:
                size += len(groups[count].payload)
                count += 1
            self._apply(peer, groups[0].base, wire.encode_batch(groups[:count]))
            revision = groups[count - 1].revision
            groups = groups[count:]
        return revision

    def _go_above(
        self, peer: Peer, status: Mapping[str, Any], *, is_replaced: bool
    ) -> None:
        """Have the numbers left out that copies which are replaced have shown."""
        own = numbers.of(self._backend.read, self._candidates.revision)
        if wanted := numbers.above(own, status, is_replaced=is_replaced):
            _log.warning(
                "a copy of %s with higher numbers was replaced, or is: leaving out all"
                " up to revision %d, serial %d and job %d",
                peer.name,
                *wanted,
            )
            self._settings.on_higher(wanted)

    def _copy_archive(self, peer: Peer) -> float | None:
        """Send some archived jobs and logs: a whole copy lacks them.

        Returns:
            Seconds to wait before this is called again.
        """
        revision, page, rows = self._backend.archive.page(peer.archive, CATCH_UP_BYTES)
        if revision < peer.acked:
            # The rows are older than the copy: one of them may have been removed.
            return _DISK_S
        self._apply(peer, peer.acked, wire.encode_batch((), rows, page))
        peer.archive = page.next
        if not peer.archive:
            _log.info("master candidate %s has all archived jobs", peer.name)
        return None

    def _apply(self, peer: Peer, base: int, data: str) -> None:
        answer = self._call(peer, calls.store_apply(self._candidates.term, base, data))
        sending.require_applied(base, answer)

    def _call(self, peer: Peer, request: Request[Facts]) -> Mapping[str, Any]:
        answer = self._replicate((peer.node,), request).get(peer.node)
        payload = sending.payload_of(request.procedure, answer)
        peer.heard_at = self._clock.monotonic()
        return payload


def _cursor(status: Mapping[str, Any]) -> str:
    """Return where a candidate's archive ends; earlier releases do not know it."""
    cursor = str(status.get("archive", ""))
    return cursor if cursor.partition("/")[0] in ("", *ARCHIVED) else ARCHIVE_START
