"""The copies on master candidates, kept up to date from the master.

A candidate gets change-sets in order, one call after another. It is *current* when it
has, or is being sent, every revision. A failure makes it *stale*: it is then asked for
a promise of the master's term, and *catches up* by the change-sets that it lacks, or by
a whole copy when its history is another. When a commit is acknowledged is decided by
`ganeti.decisions.quorum`.

Whoever has a group for a current candidate begins the call, a *flight*, and the answer
is counted where it arrives. All that has to wait is done by one thread per candidate:
questions, catching up, and what follows a failure. There is never more than one call
under way to a candidate: `Peer.is_busy`.

In a large set, a group goes at once only to as many candidates as a majority needs, the
fastest ones. The others get it a moment later, together with those that follow: else
most of the master's work were calls that nobody waits for.
"""

import collections
import enum
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.decisions.quorum import Ack, Term, Voters, acknowledgement
from ganeti.model.objects import CLUSTER_KEY, Snapshot
from ganeti.store import features, numbers, wire
from ganeti.store.backend import ARCHIVE_START, ARCHIVED, Backend, Group
from ganeti.store.base import CopyState
from ganeti.store.copies import sending
from ganeti.store.settings import CommitSettings

_log = logging.getLogger(__name__)

#: Seconds that a commit waits for candidates. Then the master refuses changes, or goes
#: on without a majority where it may.
ACK_TIMEOUT_S: Final = 5.0
#: Pauses between attempts to reach a stale candidate.
RETRY_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
#: Seconds between two looks at what the administrator allows while a commit waits.
RECHECK_S: Final = 1.0
#: Time between two warnings that commits have no majority.
WARN_EVERY_S: Final = 60.0
#: Seconds between questions to a candidate while nothing is written: so an idle master
#: notices that it was replaced, and a lost copy is found.
IDLE_CHECK_S: Final = 5.0
#: Seconds after which the master's disk should have what a candidate has.
_DISK_S: Final = 0.01
#: Candidates from which on some get groups late. In smaller sets, one lost copy would
#: leave no spare one for that time.
LATE_FROM: Final = 5
#: Seconds until all candidates are sent a group. A candidate that is frozen delays one
#: commit by this time: after that it is busy, and others are asked.
LATE_S: Final = 0.03
#: Weight of one answer in the time that a candidate is expected to take.
_WEIGHT: Final = 0.2
_APPLY: Final = "store_apply"
#: Payload bytes of one call to a candidate that catches up.
CATCH_UP_BYTES: Final = 1024 * 1024


class _State(enum.Enum):
    STALE = enum.auto()
    CATCHING_UP = enum.auto()
    CURRENT = enum.auto()
    STOPPED = enum.auto()


#: Advice for a candidate that follows a master which a minority elected.
_HIGHER_TERM: Final = (
    "a restart of ganeti-masterd takes a higher term, see ganeti-watcher(8)"
)
_RECEIVING: Final = (_State.CATCHING_UP, _State.CURRENT)


class Peer:
    """One candidate. The fields are guarded by the lock of `Peers`."""

    def __init__(self, node: str, name: str) -> None:
        self.node = node
        self.name = name
        self.state = _State.STALE
        self.is_tried = False
        self.acked = -1
        self.queue: collections.deque[Group] = collections.deque()
        self.wake = threading.Event()
        #: The queue is to be sent now.
        self.is_due = False
        #: A call is under way, or its failure is not processed yet.
        self.is_busy = False
        #: The failure of a flight, for the thread.
        self.failure: errors.GenericError | None = None
        #: The thread waits for the end of a flight, and it has got the candidate then,
        #: before another flight could.
        self.is_wanted = self.is_handed = False
        #: Time of the last good answer.
        self.heard_at = 0.0
        #: Seconds that a call is expected to take.
        self.answer_s = 0.0
        self.failures = 0
        #: Where its archive ends, empty if it is complete.
        self.archive = ""
        #: The last answer was that another master has a later term.
        self.is_refusing = False
        #: Its copy lets the master daemon start again, with a higher term.
        self.can_restart = False
        self.must_check = False
        #: Set when nothing more is sent.
        self.has_ended = threading.Event()
        #: Features that its release knows, None if it was not heard.
        self.features: features.Features | None = None
        self.trouble = "not asked yet"


#: Done by the thread of a candidate; returns seconds to pause after it.
_Task = Callable[[Peer], float | None]


class _Flight(NamedTuple):
    """A call of `store_apply` for candidates that all get the same groups."""

    groups: Sequence[Group]
    peers: dict[str, Peer]
    began: float


class Peers:
    """All candidates but this node; see `ganeti.store.engine.Copies`."""

    def __init__(
        self,
        backend: Backend,
        *,
        replicate: sending.Replicate,
        clock: clock_module.Clock,
        node: str = "",
        settings: CommitSettings | None = None,
    ) -> None:
        """Prepare; nothing is sent before `start`."""
        self._settings = settings or CommitSettings()
        self._backend = backend
        self._replicate = replicate
        self._begin_call = sending.beginner(replicate)
        self._clock = clock
        self._node = node
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        #: No candidates any more; a call may be under way.
        self._dropped: list[Peer] = []
        self._term = Term()
        self._voters = Voters(frozenset())
        self._ack = Ack.SAFE
        #: The last group was acknowledged without a majority.
        self._is_exposed = False
        self._cluster = ""
        #: Of the last group that was sent.
        self._revision = 0
        self._deposed: errors.TermError | None = None
        self._on_deposed: Callable[[errors.TermError], None] | None = None
        self._settled = threading.Event()
        #: Sent, but perhaps not yet in the backend.
        self._unwritten: Group | None = None
        #: It is in a candidate's queue, or was.
        self._is_sent = False
        self._closing = threading.Event()
        #: A candidate's queue is not due.
        self._has_late = threading.Event()
        self._awaited: Group | None = None
        self._is_overdue = False
        self._warned_at: float | None = None
        self._used: features.Features = frozenset()
        self._encoded: tuple[tuple[bytes, bytes], str] = ((b"", b""), "")

    # For the engine
    def start(
        self,
        snapshot: Snapshot,
        term: Term,
        voters: Voters,
        on_deposed: Callable[[errors.TermError], None],
    ) -> None:
        """Begin to bring candidates up to the present state."""
        self._term = term
        self._revision = snapshot.revision
        self._on_deposed = on_deposed
        threading.Thread(target=self._send_late, name="store-late", daemon=True).start()
        self.refresh(snapshot, voters)

    def refresh(self, snapshot: Snapshot, voters: Voters) -> None:
        """Take notice of nodes that became candidates or ceased to be."""
        nodes = snapshot.nodes
        wanted = {
            uuid: nodes[uuid].name if uuid in nodes else uuid
            for uuid in voters.everyone
        }
        if CLUSTER_KEY in snapshot.table("cluster"):
            self._cluster = snapshot.cluster.uuid
            self._node = self._node or snapshot.cluster.master_node
        wanted.pop(self._node, None)
        with self._lock:
            self._voters = voters
            for uuid in self._peers.keys() - wanted.keys():
                peer = self._peers.pop(uuid)
                peer.state = _State.STOPPED
                peer.wake.set()
                self._dropped.append(peer)
            self._dropped = [p for p in self._dropped if not p.has_ended.is_set()]
            for uuid in wanted.keys() - self._peers.keys():
                peer = self._peers[uuid] = Peer(uuid, wanted[uuid])
                peer.is_tried = uuid in self._settings.silent
                threading.Thread(
                    target=self._run,
                    args=(peer,),
                    name=f"store-{peer.name}",
                    daemon=True,
                ).start()

    def await_dropped(self, node: str, seconds: float) -> bool:
        """Wait for calls to a node that is no candidate now; return if all ended."""
        deadline = self._clock.monotonic() + seconds
        with self._lock:
            dropped = [peer for peer in self._dropped if peer.node == node]
        return all(
            self._clock.wait(peer.has_ended, max(0, deadline - self._clock.monotonic()))
            for peer in dropped
        )

    def send(self, group: Group) -> None:
        """Send a group to the candidates that are up to date."""
        with self._lock:
            if self._deposed is not None:
                raise errors.TermError(*self._deposed.args)
            self._unwritten = group
            self._revision = group.revision
            self._is_sent = False
            for peer in self._peers.values():
                if peer.state in _RECEIVING:
                    peer.queue.append(group)
                    self._is_sent = True
            for peer in self._prompt_locked():
                peer.is_due = True
            flights = self._flights_locked(self._peers.values())
            if any(p.queue and not p.is_due for p in self._peers.values()):
                self._has_late.set()
        self._begin(flights)

    def _prompt_locked(self) -> list[Peer]:
        """Return the candidates that get a group at once."""
        peers = list(self._peers.values())
        if len(self._voters.everyone) < LATE_FROM:
            return peers
        prompt = [peer for peer in peers if peer.state is not _State.CURRENT]
        having = {self._node}
        for peer in sorted(peers, key=lambda peer: (peer.is_busy, peer.answer_s)):
            if peer.state is not _State.CURRENT:
                continue
            if self._voters.has_majority(having):
                break
            prompt.append(peer)
            having.add(peer.node)
        return prompt

    def _send_late(self) -> None:
        """Send what is late; the body of a thread."""
        while not self._closing.is_set():
            self._has_late.wait()
            self._clock.wait(self._closing, LATE_S)
            with self._lock:
                self._has_late.clear()
                self._hurry_locked()
                flights = self._flights_locked(self._peers.values())
            self._begin(flights)

    def _hurry_locked(self) -> None:
        """Have what is in the queues sent now."""
        for peer in self._peers.values():
            if peer.queue and not peer.is_due:
                peer.is_due = True
                peer.wake.set()

    def disown(self) -> bool:
        """Take back the group that was sent last: it did not become durable here.

        Returns:
            False if a candidate may have it.
        """
        with self._lock:
            if self._is_sent:
                return False
            self._unwritten = None
            return True

    def pause(self, seconds: float) -> None:
        """Wait before something is tried again."""
        self._clock.wait(self._closing, seconds)

    def begin_close(self) -> None:
        """Stop waiting for a majority that is missing."""
        self._closing.set()
        self._has_late.set()

    def wait(self, group: Group) -> None:
        """Block until a group may be acknowledged, see `ganeti.decisions.quorum`.

        After `ACK_TIMEOUT_S` without a majority, `refuses` is true where a majority is
        needed, and this goes on waiting: what becomes of the group is not known before.
        """
        with self._lock:
            self._unwritten = None
            self._awaited = group
            self._is_overdue = False
            self._settled.clear()
            self._settle_locked()
        if not self._clock.wait(self._settled, ACK_TIMEOUT_S):
            self._give_up(group)
            while not self._clock.wait(self._settled, RECHECK_S):
                with self._lock:
                    self._settle_locked()
                is_over = self._closing.is_set() or not self._settings.is_patient
                if is_over and not self._settled.is_set():
                    raise errors.CommitUnknownError(f"store: {self.exposure()}")
        with self._lock:
            self._awaited = None
            if self._deposed is not None:
                raise errors.TermError(*self._deposed.args)
            self._is_exposed = self._ack is Ack.EXPOSED
            if not self._is_exposed:
                self._settings.accept_loss = False
        if self._is_exposed:
            self._warn(group)

    @property
    def refuses(self) -> bool:
        """Return whether changes are refused, for want of a majority."""
        return self._ack is Ack.REFUSE

    def all_know(self, feature: str) -> bool:
        """Return whether the releases of all candidates know a feature."""
        with self._lock:
            return all(feature in (p.features or ()) for p in self._peers.values())

    def use(self, used: features.Features) -> None:
        """Take notice of the features in use; a candidate that lacks one gets nothing.

        Features are added by `all_know` alone, so this concerns candidates that are
        added or exchanged later.
        """
        self._used = used

    def status(self) -> dict[str, CopyState]:
        """Return the state of each candidate's copy by node uuid."""
        with self._lock:
            return {uuid: _state_of(peer) for uuid, peer in self._peers.items()}

    def exposure(self) -> str:
        """Return a warning about changes that too few copies hold; empty if none."""
        if self._ack is Ack.REFUSE:
            return f"changes are refused: {self._shortage()}"
        if self._is_exposed and not self._has_majority():
            return (
                f"{self._shortage()}; changes are lost if the nodes that hold them fail"
            )
        return ""

    def _has_majority(self) -> bool:
        """Return whether a majority has, or is being sent, every revision."""
        with self._lock:
            current = {
                uuid
                for uuid, peer in self._peers.items()
                if peer.state is _State.CURRENT
            }
            return self._voters.has_majority({self._node} | current)

    def _shortage(self) -> str:
        with self._lock:
            silent = sorted(
                peer.name
                for peer in self._peers.values()
                if peer.state is not _State.CURRENT
            )
            count = len(self._voters.everyone)
        return (
            f"no majority of the {count} master candidates has the newest changes,"
            f" missing: {', '.join(silent) or 'none'}"
        )

    def check_now(self) -> None:
        """Ask all candidates for their promise, for one node reports a later term."""
        with self._lock:
            for peer in self._peers.values():
                peer.must_check = True
                peer.wake.set()

    def close(self) -> None:
        """Stop sending; calls under way end by themselves."""
        self.begin_close()
        with self._lock:
            self._stop_locked()
            self._peers = {}

    def _stop_locked(self) -> None:
        for peer in self._peers.values():
            peer.state = _State.STOPPED
            peer.wake.set()

    # Counting answers
    def _settle_locked(self) -> None:
        group = self._awaited
        if group is None:
            return
        having = {self._node} | {
            uuid
            for uuid, peer in self._peers.items()
            if peer.acked >= group.revision and peer.state is _State.CURRENT
        }
        self._ack = acknowledgement(
            self._voters,
            having,
            is_open=any(
                not peer.is_tried
                or (peer.state is _State.CURRENT and peer.acked < group.revision)
                for peer in self._peers.values()
            ),
            is_overdue=self._is_overdue,
            is_lenient=self._settings.accept_loss or self._settings.is_lenient(),
        )
        if self._ack in {Ack.SAFE, Ack.EXPOSED} or self._deposed is not None:
            self._settled.set()

    def _give_up(self, group: Group) -> None:
        with self._lock:
            self._is_overdue = True
            for peer in self._peers.values():
                peer.is_tried = True
                if peer.state is _State.CURRENT and peer.acked < group.revision:
                    self._set_stale_locked(peer, f"no answer for {ACK_TIMEOUT_S:.0f} s")
            self._settle_locked()
            is_refused = self._ack is Ack.REFUSE
        if is_refused:
            _log.error("NO MAJORITY: %s", self.exposure())

    def _warn(self, group: Group) -> None:
        now = self._clock.monotonic()
        if self._warned_at is not None and now - self._warned_at < WARN_EVERY_S:
            return
        self._warned_at = now
        _log.warning("NO MAJORITY: revision %d: %s", group.revision, self.exposure())

    def _set_stale_locked(self, peer: Peer, why: str) -> None:
        if peer.state is _State.CURRENT:
            _log.warning("master candidate %s is behind: %s", peer.name, why)
        if peer.state in _RECEIVING:
            peer.state = _State.STALE
        peer.trouble = why
        peer.queue.clear()
        peer.wake.set()
        # The others must make up for it.
        self._hurry_locked()
        self._settle_locked()

    def _take_refusal(self, peer: Peer, error: errors.TermError) -> float:
        """Note that a candidate follows another master; return seconds to pause.

        One candidate's answer deposes nobody: see
        `ganeti.decisions.quorum.Voters.is_deposed`.
        """
        pause = self._note_failure(peer, f"{error}; {_HIGHER_TERM}")
        with self._lock:
            peer.is_refusing = True
            refusing = {uuid for uuid, p in self._peers.items() if p.is_refusing}
            is_deposed = self._voters.is_deposed(refusing)
            if is_deposed:
                self._deposed = error
                self._settled.set()
                self._stop_locked()
            else:
                for other in self._peers.values():
                    if not other.is_refusing:
                        other.must_check = True
                        other.wake.set()
        if is_deposed and self._on_deposed is not None:
            self._on_deposed(error)
        if not is_deposed:
            peer.can_restart = self._settings.on_refusal(peer.node)
        return pause

    # The thread of one candidate
    def _run(self, peer: Peer) -> None:
        try:
            self._serve(peer)
        finally:
            peer.has_ended.set()

    def _serve(self, peer: Peer) -> None:
        while True:
            with self._lock:
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
        if peer.state is _State.STOPPED:
            return None, False
        if peer.state is _State.CURRENT and peer.is_due and peer.queue:
            return self._launch, False
        if peer.state is _State.STALE:
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
            flights = self._flights_locked([peer])
        self._begin(flights)

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

    # Flights
    def _flights_locked(self, peers: Iterable[Peer]) -> list[_Flight]:
        """Return the calls that are due; they must be begun after this."""
        flights: dict[tuple[bytes, bytes], _Flight] = {}
        now = self._clock.monotonic()
        for peer in peers:
            is_ready = peer.state is _State.CURRENT and not peer.is_busy
            if is_ready and peer.is_due and peer.queue:
                groups = tuple(peer.queue)
                peer.queue.clear()
                peer.is_due, peer.is_busy = False, True
                key = (groups[0].parent, groups[-1].digest)
                flight = flights.setdefault(key, _Flight(groups, {}, now))
                flight.peers[peer.node] = peer
        return list(flights.values())

    def _begin(self, flights: Iterable[_Flight]) -> None:
        for flight in flights:
            base = flight.groups[0].base
            try:
                self._begin_call(
                    list(flight.peers),
                    _APPLY,
                    (self._term, base, self._encode(flight.groups)),
                    functools.partial(self._take_answer, flight),
                )
            except Exception as err:  # noqa: BLE001 - the copies must be kept up
                _log.exception("revision %d cannot be sent", flight.groups[-1].revision)
                failure = errors.StorageError(f"cannot be sent to: {err!r}")
                for peer in flight.peers.values():
                    self._fail_later(peer, failure)

    def _take_answer(self, flight: _Flight, node: str, answer: Any) -> None:
        """Count a candidate's answer to a flight; called from any thread."""
        peer = flight.peers[node]
        try:
            payload = sending.payload_of(_APPLY, answer)
            groups = flight.groups
            sending.require_applied(groups[0].base, payload, groups[-1].digest)
        except errors.GenericError as err:
            self._fail_later(peer, err)
            return
        taken_s = self._clock.monotonic() - flight.began
        flights = []
        with self._lock:
            peer.answer_s += _WEIGHT * (taken_s - peer.answer_s)
            self._note_ack_locked(peer, flight.groups[-1].revision)
            if peer.is_wanted:
                peer.is_wanted, peer.is_handed = False, True
                peer.wake.set()
            else:
                peer.is_busy = False
                flights = self._flights_locked([peer])
        self._begin(flights)

    def _fail_later(self, peer: Peer, failure: errors.GenericError) -> None:
        """Pass a failure to the candidate's thread; it remains busy until then."""
        with self._lock:
            peer.failure, peer.is_wanted = failure, False
            peer.wake.set()

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

    def _note_failure(self, peer: Peer, why: str) -> float:
        with self._lock:
            # Whoever closes the store ends the calls that are under way.
            is_news = peer.state not in (_State.CURRENT, _State.STOPPED)
            if peer.failures == 0 and is_news:
                _log.warning("master candidate %s cannot be used: %s", peer.name, why)
            peer.is_tried = True
            self._set_stale_locked(peer, why)
            if peer.state is not _State.STOPPED:
                peer.wake.clear()
            pause = RETRY_S[min(peer.failures, len(RETRY_S) - 1)]
            peer.failures += 1
        return pause

    def _apply(self, peer: Peer, base: int, data: str) -> None:
        answer = self._call(peer, _APPLY, (self._term, base, data))
        sending.require_applied(base, answer)

    def _encode(self, groups: Sequence[Group]) -> str:
        """Return the text of groups; candidates are mostly sent the same."""
        key = (groups[0].digest, groups[-1].digest)
        known, text = self._encoded
        if known != key:
            text = wire.encode_batch(groups)
            self._encoded = (key, text)
        return text

    def _note_ack_locked(self, peer: Peer, revision: int) -> None:
        peer.acked = revision
        peer.heard_at = self._clock.monotonic()
        peer.failures = 0
        peer.is_refusing = False
        self._settle_locked()

    def _repair(self, peer: Peer) -> None:
        status = self._promise_of(peer)
        known = features.from_status(status)
        with self._lock:
            if peer.state is not _State.STALE:
                return
            peer.features = known
            if missing := self._used - known:
                raise errors.StorageError(
                    f"its release does not know {', '.join(sorted(missing))}, which the"
                    " stored form uses: upgrade the software of the node"
                )
            # From here on new groups queue up, so that nothing falls between.
            peer.state = _State.CATCHING_UP
            if self._unwritten is not None:
                peer.queue.append(self._unwritten)
                self._is_sent = True
        peer.archive = _cursor(status)
        revision = self._catch_up(peer, status)
        with self._lock:
            if peer.state is not _State.CATCHING_UP:
                return
            peer.state, peer.is_tried = _State.CURRENT, True
            while peer.queue and peer.queue[0].revision <= revision:
                peer.queue.popleft()
            peer.is_due = bool(peer.queue)
            self._note_ack_locked(peer, revision)
        _log.info("master candidate %s has revision %d", peer.name, revision)

    def _promise_of(self, peer: Peer) -> Mapping[str, Any]:
        """Have a candidate promise this term; return where its copy stands.

        What it has left of another cluster is replaced, whatever its term.
        """
        status = self._call(peer, "store_status", ())
        if status.get("cluster", "") not in ("", self._cluster):
            return status
        return self._call(peer, "store_promise", (self._term,))

    def _check(self, peer: Peer) -> None:
        """Look whether an idle candidate still has what it had."""
        revision = int(self._promise_of(peer)["revision"])
        if revision != peer.acked:
            raise errors.StorageError(f"wanted revision {peer.acked}, found {revision}")

    def _catch_up(self, peer: Peer, status: Mapping[str, Any]) -> int:
        """Send what a candidate lacks; return the revision that it has then."""
        revision = int(status["revision"])
        digest = bytes.fromhex(status["digest"])
        # An empty copy becomes a whole one in one transaction: it must not count for
        # an election while it has a part of what it once acknowledged.
        groups = self._backend.changes_since(revision, digest) if revision else None
        if status.get("cluster", "") == self._cluster:
            self._go_above(peer, status, is_replaced=groups is None)
        if groups is None:
            copy = self._backend.dump()
            answer = self._call(
                peer, "store_install", (self._term, wire.encode_copy(copy))
            )
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
        own = numbers.of(self._backend.read, self._revision)
        if wanted := numbers.above(own, status, is_replaced=is_replaced):
            _log.warning(
                "a copy of %s with higher numbers was replaced, or is: leaving out all"
                " up to revision %d, serial %d and job %d",
                peer.name,
                *wanted,
            )
            self._settings.on_higher(wanted)

    def _call(
        self, peer: Peer, procedure: str, args: Sequence[Any]
    ) -> Mapping[str, Any]:
        answer = self._replicate((peer.node,), procedure, args).get(peer.node)
        payload = sending.payload_of(procedure, answer)
        peer.heard_at = self._clock.monotonic()
        return payload


def _state_of(peer: Peer) -> CopyState:
    trouble = _shortcoming(peer)
    wants_restart = peer.is_refusing and peer.can_restart
    return CopyState(not trouble, peer.acked, trouble, wants_restart)


def _shortcoming(peer: Peer) -> str:
    """Return why a candidate's copy is not current, empty if it is."""
    if peer.state is not _State.CURRENT:
        return peer.trouble
    return "archived jobs are still being copied" if peer.archive else ""


def _cursor(status: Mapping[str, Any]) -> str:
    """Return where a candidate's archive ends; earlier releases do not know it."""
    cursor = str(status.get("archive", ""))
    return cursor if cursor.partition("/")[0] in ("", *ARCHIVED) else ARCHIVE_START
