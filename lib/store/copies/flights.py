"""Groups on their way to candidates that are up to date.

A *flight* is a call of `store_apply` that nobody waits for; its answer is counted where
it arrives.
"""

import functools
import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.protocols.rpc import calls
from ganeti.store import wire
from ganeti.store.backend import Group
from ganeti.store.copies import sending
from ganeti.store.copies.candidates import Candidates, Peer, State

_log = logging.getLogger(__name__)

#: Seconds until all candidates are sent a group. A candidate that is frozen delays one
#: commit by this time: after that it is busy, and others are asked.
LATE_S: Final = 0.03
#: Weight of one answer in the time that a candidate is expected to take.
_WEIGHT: Final = 0.2


class Flight(NamedTuple):
    """A call of `store_apply` for candidates that all get the same groups."""

    groups: Sequence[Group]
    peers: dict[str, Peer]
    began: float


class Flights:
    """Begins flights and takes their answers.

    The lock of `Candidates` guards which groups are taken, and for whom. Flights are
    begun without it, by whichever thread has taken them: the committer's, that of a
    candidate, `send_late`, or the one that brought an answer.
    """

    def __init__(
        self,
        candidates: Candidates,
        begin_call: sending.Begin,
        clock: clock_module.Clock,
    ) -> None:
        """Begin nothing yet."""
        self._candidates = candidates
        self._lock = candidates.lock
        self._begin_call = begin_call
        self._clock = clock
        #: A candidate's queue is not due.
        self.has_late = threading.Event()
        self._encoded: tuple[tuple[bytes, bytes], str] = ((b"", b""), "")

    def take_locked(self, peers: Iterable[Peer]) -> list[Flight]:
        """Return the calls that are due; they must be begun after this."""
        flights: dict[tuple[bytes, bytes], Flight] = {}
        now = self._clock.monotonic()
        for peer in peers:
            is_ready = peer.state is State.CURRENT and not peer.is_busy
            if is_ready and peer.is_due and peer.queue:
                groups = tuple(peer.queue)
                peer.queue.clear()
                peer.is_due, peer.is_busy = False, True
                key = (groups[0].parent, groups[-1].digest)
                flight = flights.setdefault(key, Flight(groups, {}, now))
                flight.peers[peer.node] = peer
        return list(flights.values())

    def begin(self, flights: Iterable[Flight]) -> None:
        """Begin calls that were taken; without the lock."""
        for flight in flights:
            base = flight.groups[0].base
            try:
                self._begin_call(
                    list(flight.peers),
                    calls.store_apply(
                        self._candidates.term, base, self._encode(flight.groups)
                    ),
                    functools.partial(self._take_answer, flight),
                )
            except Exception as err:  # noqa: BLE001 - the copies must be kept up
                _log.exception("revision %d cannot be sent", flight.groups[-1].revision)
                failure = errors.StorageError(f"cannot be sent to: {err!r}")
                for peer in flight.peers.values():
                    self._fail_later(peer, failure)

    def _take_answer(self, flight: Flight, node: str, answer: Any) -> None:
        """Count a candidate's answer to a flight; called from any thread."""
        peer = flight.peers[node]
        try:
            payload = sending.payload_of(calls.store_apply, answer)
            groups = flight.groups
            sending.require_applied(groups[0].base, payload, groups[-1].digest)
        except errors.GenericError as err:
            self._fail_later(peer, err)
            return
        taken_s = self._clock.monotonic() - flight.began
        flights = []
        with self._lock:
            peer.answer_s += _WEIGHT * (taken_s - peer.answer_s)
            revision = groups[-1].revision
            self._candidates.note_ack_locked(peer, revision, self._clock.monotonic())
            if peer.is_wanted:
                peer.is_wanted, peer.is_handed = False, True
                peer.wake.set()
            else:
                peer.is_busy = False
                flights = self.take_locked([peer])
        self.begin(flights)

    def _fail_later(self, peer: Peer, failure: errors.GenericError) -> None:
        """Pass a failure to the candidate's thread; it remains busy until then."""
        with self._lock:
            peer.failure, peer.is_wanted = failure, False
            peer.wake.set()

    def _encode(self, groups: Sequence[Group]) -> str:
        """Return the text of groups; candidates are mostly sent the same."""
        key = (groups[0].digest, groups[-1].digest)
        known, text = self._encoded
        if known != key:
            text = wire.encode_batch(groups)
            self._encoded = (key, text)
        return text

    def send_late(self) -> None:
        """Send what is late; the body of a thread."""
        while not self._candidates.closing.is_set():
            self.has_late.wait()
            self._clock.wait(self._candidates.closing, LATE_S)
            with self._lock:
                self.has_late.clear()
                self._candidates.hurry_locked()
                flights = self.take_locked(self._candidates.peers.values())
            self.begin(flights)
