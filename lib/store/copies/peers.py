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

import logging
import threading
from collections.abc import Callable
from typing import Final

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.decisions.quorum import Ack, Term, Voters
from ganeti.model.objects import CLUSTER_KEY, Snapshot
from ganeti.store import features
from ganeti.store.backend import Backend, Group
from ganeti.store.base import CopyState
from ganeti.store.copies import sending
from ganeti.store.copies.candidates import RECEIVING, Candidates, Peer, State, state_of
from ganeti.store.copies.flights import Flights
from ganeti.store.copies.keeper import Keeper
from ganeti.store.numbers import CommitSettings

_log = logging.getLogger(__name__)

#: Seconds that a commit waits for candidates. Then the master refuses changes, or goes
#: on without a majority where it may.
ACK_TIMEOUT_S: Final = 5.0
#: Seconds between two looks at what the administrator allows while a commit waits.
RECHECK_S: Final = 1.0
#: Time between two warnings that commits have no majority.
WARN_EVERY_S: Final = 60.0


class Peers:
    """All candidates but this node; see `ganeti.store.backend.Copies`.

    The committer's thread sends and waits; any thread may ask for the state or close.
    What they share is in `Candidates`, under its lock, which also guards `_dropped`;
    the two fields about missing majorities are set by the committer's thread alone.
    """

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
        self._clock = clock
        self._candidates = Candidates(node, self._settings)
        self._lock = self._candidates.lock
        self._flights = Flights(self._candidates, sending.beginner(replicate), clock)
        self._keeper = Keeper(
            self._candidates,
            self._flights,
            backend,
            replicate=replicate,
            settings=self._settings,
            clock=clock,
        )
        #: No candidates any more; a call may be under way.
        self._dropped: list[Peer] = []
        #: The last group was acknowledged without a majority.
        self._is_exposed = False
        self._warned_at: float | None = None

    # For the engine
    def start(
        self,
        snapshot: Snapshot,
        term: Term,
        voters: Voters,
        on_deposed: Callable[[errors.TermError], None],
    ) -> None:
        """Begin to bring candidates up to the present state."""
        self._candidates.term = term
        self._candidates.revision = snapshot.revision
        self._candidates.on_deposed = on_deposed
        threading.Thread(
            target=self._flights.send_late, name="store-late", daemon=True
        ).start()
        self.refresh(snapshot, voters)

    def refresh(self, snapshot: Snapshot, voters: Voters) -> None:
        """Take notice of nodes that became candidates or ceased to be."""
        nodes = snapshot.nodes
        wanted = {
            uuid: nodes[uuid].name if uuid in nodes else uuid
            for uuid in voters.everyone
        }
        if CLUSTER_KEY in snapshot.table("cluster"):
            self._candidates.cluster = snapshot.cluster.uuid
            self._candidates.node = (
                self._candidates.node or snapshot.cluster.master_node
            )
        wanted.pop(self._candidates.node, None)
        with self._lock:
            self._candidates.voters = voters
            for uuid in self._candidates.peers.keys() - wanted.keys():
                peer = self._candidates.peers.pop(uuid)
                peer.state = State.STOPPED
                peer.wake.set()
                self._dropped.append(peer)
            self._dropped = [p for p in self._dropped if not p.has_ended.is_set()]
            for uuid in wanted.keys() - self._candidates.peers.keys():
                peer = self._candidates.peers[uuid] = Peer(uuid, wanted[uuid])
                peer.is_tried = uuid in self._settings.silent
                threading.Thread(
                    target=self._keeper.run,
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
            if self._candidates.deposed is not None:
                raise errors.TermError(*self._candidates.deposed.args)
            self._candidates.unwritten = group
            self._candidates.revision = group.revision
            self._candidates.is_sent = False
            for peer in self._candidates.peers.values():
                if peer.state in RECEIVING:
                    peer.queue.append(group)
                    self._candidates.is_sent = True
            for peer in self._candidates.prompt_locked():
                peer.is_due = True
            flights = self._flights.take_locked(self._candidates.peers.values())
            if any(p.queue and not p.is_due for p in self._candidates.peers.values()):
                self._flights.has_late.set()
        self._flights.begin(flights)

    def disown(self) -> bool:
        """Take back the group that was sent last: it did not become durable here.

        Returns:
            False if a candidate may have it.
        """
        with self._lock:
            if self._candidates.is_sent:
                return False
            self._candidates.unwritten = None
            return True

    def pause(self, seconds: float) -> None:
        """Wait before something is tried again."""
        self._clock.wait(self._candidates.closing, seconds)

    def begin_close(self) -> None:
        """Stop waiting for a majority that is missing."""
        self._candidates.closing.set()
        self._flights.has_late.set()

    def wait(self, group: Group) -> None:
        """Block until a group may be acknowledged, see `ganeti.decisions.quorum`.

        After `ACK_TIMEOUT_S` without a majority, `refuses` is true where a majority is
        needed, and this goes on waiting: what becomes of the group is not known before.
        """
        settled = self._candidates.settled
        with self._lock:
            self._candidates.unwritten = None
            self._candidates.awaited = group
            self._candidates.is_overdue = False
            settled.clear()
            self._candidates.settle_locked()
        if not self._clock.wait(settled, ACK_TIMEOUT_S):
            self._give_up(group)
            while not self._clock.wait(settled, RECHECK_S):
                with self._lock:
                    self._candidates.settle_locked()
                is_closing = self._candidates.closing.is_set()
                is_over = is_closing or not self._settings.is_patient
                if is_over and not settled.is_set():
                    raise errors.CommitUnknownError(f"store: {self.exposure()}")
        with self._lock:
            self._candidates.awaited = None
            if self._candidates.deposed is not None:
                raise errors.TermError(*self._candidates.deposed.args)
            self._is_exposed = self._candidates.ack is Ack.EXPOSED
            if not self._is_exposed:
                self._settings.accept_loss = False
        if self._is_exposed:
            self._warn(group)

    def _give_up(self, group: Group) -> None:
        with self._lock:
            self._candidates.is_overdue = True
            for peer in self._candidates.peers.values():
                peer.is_tried = True
                if peer.state is State.CURRENT and peer.acked < group.revision:
                    self._candidates.set_stale_locked(
                        peer, f"no answer for {ACK_TIMEOUT_S:.0f} s"
                    )
            self._candidates.settle_locked()
            is_refused = self._candidates.ack is Ack.REFUSE
        if is_refused:
            _log.error("NO MAJORITY: %s", self.exposure())

    def _warn(self, group: Group) -> None:
        now = self._clock.monotonic()
        if self._warned_at is not None and now - self._warned_at < WARN_EVERY_S:
            return
        self._warned_at = now
        _log.warning("NO MAJORITY: revision %d: %s", group.revision, self.exposure())

    @property
    def refuses(self) -> bool:
        """Return whether changes are refused, for want of a majority."""
        return self._candidates.ack is Ack.REFUSE

    def all_know(self, feature: str) -> bool:
        """Return whether the releases of all candidates know a feature."""
        with self._lock:
            return all(
                feature in (p.features or ()) for p in self._candidates.peers.values()
            )

    def use(self, used: features.Features) -> None:
        """Take notice of the features in use; a candidate that lacks one gets nothing.

        Features are added by `all_know` alone, so this concerns candidates that are
        added or exchanged later.
        """
        self._candidates.used = used

    def status(self) -> dict[str, CopyState]:
        """Return the state of each candidate's copy by node uuid."""
        with self._lock:
            return {
                uuid: state_of(peer) for uuid, peer in self._candidates.peers.items()
            }

    def exposure(self) -> str:
        """Return a warning about changes that too few copies hold; empty if none."""
        if self._candidates.ack is Ack.REFUSE:
            return f"changes are refused: {self._candidates.shortage()}"
        if self._is_exposed and not self._candidates.has_majority():
            return (
                f"{self._candidates.shortage()}; changes are lost if the nodes that"
                " hold them fail"
            )
        return ""

    def check_now(self) -> None:
        """Ask all candidates for their promise, for one node reports a later term."""
        with self._lock:
            for peer in self._candidates.peers.values():
                peer.must_check = True
                peer.wake.set()

    def close(self) -> None:
        """Stop sending; calls under way end by themselves."""
        self.begin_close()
        with self._lock:
            self._candidates.stop_locked()
            self._candidates.peers = {}
