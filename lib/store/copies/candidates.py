"""The state of the candidates as a master knows it, and the count of their answers.

Nothing here calls or waits: the master's side is `ganeti.store.copies.peers`, the calls
are those of `ganeti.store.copies.flights` and `ganeti.store.copies.keeper`.
"""

import collections
import enum
import logging
import threading
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.decisions.quorum import Ack, Term, Voters, acknowledgement
from ganeti.store import features
from ganeti.store.backend import Group
from ganeti.store.base import CopyState
from ganeti.store.numbers import CommitSettings

_log = logging.getLogger(__name__)

#: Candidates from which on some get groups late. In smaller sets, one lost copy would
#: leave no spare one for that time.
LATE_FROM: Final = 5


class State(enum.Enum):
    """How far a candidate's copy is."""

    STALE = enum.auto()
    CATCHING_UP = enum.auto()
    CURRENT = enum.auto()
    STOPPED = enum.auto()


RECEIVING: Final = (State.CATCHING_UP, State.CURRENT)


class Peer:
    """One candidate. The lock of `Candidates` guards the fields.

    Its own thread sets `archive`, `can_restart` and `heard_at` without the lock: of
    these, no reader needs two that belong together.
    """

    def __init__(self, node: str, name: str) -> None:
        self.node = node
        self.name = name
        self.state = State.STALE
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


def state_of(peer: Peer) -> CopyState:
    """Return what a candidate has, for others than the store."""
    trouble = "archived jobs are still being copied" if peer.archive else ""
    if peer.state is not State.CURRENT:
        trouble = peer.trouble
    wants_restart = peer.is_refusing and peer.can_restart
    return CopyState(not trouble, peer.acked, trouble, wants_restart)


class Candidates:
    """All candidates but this node, and the count of their answers.

    `lock` guards the fields of this object and of each `Peer`: the committer's thread,
    those of the candidates and the one of the HTTP client use them. Methods whose names
    end in ``_locked`` are called with the lock. The committer's thread alone sets
    `term`, `node`, `cluster`, `on_deposed` and `used`, without the lock; anybody reads
    those, and `ack`, without it.
    """

    def __init__(self, node: str, settings: CommitSettings) -> None:
        """Begin without candidates."""
        self._settings = settings
        self.lock = threading.Lock()
        self.node = node
        self.peers: dict[str, Peer] = {}
        self.voters = Voters(frozenset())
        self.term = Term()
        self.cluster = ""
        #: Features in use; a candidate that lacks one gets nothing.
        self.used: features.Features = frozenset()
        #: Of the last group that was sent.
        self.revision = 0
        #: Sent, but perhaps not yet in the backend.
        self.unwritten: Group | None = None
        #: It is in a candidate's queue, or was.
        self.is_sent = False
        self.awaited: Group | None = None
        self.is_overdue = False
        self.ack = Ack.SAFE
        self.settled = threading.Event()
        self.deposed: errors.TermError | None = None
        self.on_deposed: Callable[[errors.TermError], None] | None = None
        self.closing = threading.Event()

    def prompt_locked(self) -> list[Peer]:
        """Return the candidates that get a group at once."""
        peers = list(self.peers.values())
        if len(self.voters.everyone) < LATE_FROM:
            return peers
        prompt = [peer for peer in peers if peer.state is not State.CURRENT]
        having = {self.node}
        for peer in sorted(peers, key=lambda peer: (peer.is_busy, peer.answer_s)):
            if peer.state is not State.CURRENT:
                continue
            if self.voters.has_majority(having):
                break
            prompt.append(peer)
            having.add(peer.node)
        return prompt

    def hurry_locked(self) -> None:
        """Have what is in the queues sent now."""
        for peer in self.peers.values():
            if peer.queue and not peer.is_due:
                peer.is_due = True
                peer.wake.set()

    def stop_locked(self) -> None:
        """Send nothing more to anybody."""
        for peer in self.peers.values():
            peer.state = State.STOPPED
            peer.wake.set()

    def note_ack_locked(self, peer: Peer, revision: int, now: float) -> None:
        """Note that a candidate has a revision."""
        peer.acked = revision
        peer.heard_at = now
        peer.failures = 0
        peer.is_refusing = False
        self.settle_locked()

    def set_stale_locked(self, peer: Peer, why: str) -> None:
        """Send a candidate nothing until it has caught up."""
        if peer.state is State.CURRENT:
            _log.warning("master candidate %s is behind: %s", peer.name, why)
        if peer.state in RECEIVING:
            peer.state = State.STALE
        peer.trouble = why
        peer.queue.clear()
        peer.wake.set()
        # The others must make up for it.
        self.hurry_locked()
        self.settle_locked()

    def settle_locked(self) -> None:
        """Find out whether the awaited group may be acknowledged."""
        group = self.awaited
        if group is None:
            return
        having = {self.node} | {
            uuid
            for uuid, peer in self.peers.items()
            if peer.acked >= group.revision and peer.state is State.CURRENT
        }
        self.ack = acknowledgement(
            self.voters,
            having,
            is_open=any(
                not peer.is_tried
                or (peer.state is State.CURRENT and peer.acked < group.revision)
                for peer in self.peers.values()
            ),
            is_overdue=self.is_overdue,
            is_lenient=self._settings.accept_loss or self._settings.is_lenient(),
        )
        if self.ack in {Ack.SAFE, Ack.EXPOSED} or self.deposed is not None:
            self.settled.set()

    def has_majority(self) -> bool:
        """Return whether a majority has, or is being sent, every revision."""
        with self.lock:
            current = {
                uuid for uuid, peer in self.peers.items() if peer.state is State.CURRENT
            }
            return self.voters.has_majority({self.node} | current)

    def shortage(self) -> str:
        """Return who is missing for a majority, and how many there are."""
        with self.lock:
            silent = sorted(
                peer.name
                for peer in self.peers.values()
                if peer.state is not State.CURRENT
            )
            count = len(self.voters.everyone)
        return (
            f"no majority of the {count} master candidates has the newest changes,"
            f" missing: {', '.join(silent) or 'none'}"
        )
