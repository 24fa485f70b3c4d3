"""The copies on master candidates, kept up to date from the master.

One thread a candidate sends it change-sets in order. A candidate is *current* when
it has, or is being sent, every revision. A failure makes it *stale*: it is then
asked where it stands, and *catches up* by what it lacks, or by a whole copy when its
history is another. Commits wait for current candidates, and for those that have not
been tried since they were known; never for stale ones.
"""

import collections
import enum
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from ganeti import clock as clock_door
from ganeti import errors
from ganeti.objects import CLUSTER_KEY, Snapshot
from ganeti.store import wire
from ganeti.store.backend import Backend, Group, Row

_log = logging.getLogger(__name__)

#: How long a commit waits for candidates before it goes on without them.
ACK_TIMEOUT_S: Final = 5.0
#: Pauses between attempts to reach a stale candidate.
RETRY_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
#: Time between two warnings that commits have no majority.
WARN_EVERY_S: Final = 60.0
#: How often a candidate is asked where it stands while nothing is written: so an idle
#: master learns that it is deposed, and a lost copy is noticed.
IDLE_CHECK_S: Final = 30.0
#: Payload bytes of one call to a candidate that catches up.
CATCH_UP_BYTES: Final = 1024 * 1024


class Answer(Protocol):
    """What a node answered: `ganeti.rpc.Result` is one."""

    @property
    def payload(self) -> Any:
        """The answer."""

    @property
    def fail_msg(self) -> str | None:
        """Why there is none."""


#: (node uuids, procedure, arguments) -> node uuid -> answer; thread-safe.
Replicate = Callable[[Sequence[str], str, Sequence[Any]], Mapping[str, Any]]


class _State(enum.Enum):
    STALE = enum.auto()
    CATCHING_UP = enum.auto()
    CURRENT = enum.auto()
    STOPPED = enum.auto()


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
        self.failures = 0
        #: Rows that a whole copy lacks and that are still to be sent.
        self.archive: Iterator[Row] | None = None


class Peers:
    """All candidates but this node; see `ganeti.store.engine.Copies`."""

    def __init__(
        self,
        backend: Backend,
        *,
        replicate: Replicate,
        clock: clock_door.Clock,
        node: str = "",
    ) -> None:
        """Make it; nothing is sent before `start`."""
        self._backend = backend
        self._replicate = replicate
        self._clock = clock
        self._node = node
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._term = 0
        self._cluster = ""
        self._deposed: errors.TermError | None = None
        self._on_deposed: Callable[[errors.TermError], None] | None = None
        self._settled = threading.Event()
        #: Sent, but perhaps not yet in the backend.
        self._unwritten: Group | None = None
        self._awaited: Group | None = None
        self._warned_at: float | None = None
        self._encoded: tuple[tuple[bytes, bytes], str] = ((b"", b""), "")

    # For the engine
    def start(
        self, snapshot: Snapshot, on_deposed: Callable[[errors.TermError], None]
    ) -> None:
        """Begin to bring candidates up to the present state."""
        self._term = snapshot.term
        self._on_deposed = on_deposed
        self.refresh(snapshot)

    def refresh(self, snapshot: Snapshot) -> None:
        """Take notice of nodes that became candidates or ceased to be."""
        wanted = {
            uuid: node.name
            for uuid, node in snapshot.nodes.items()
            if node.master_candidate and not node.offline
        }
        if CLUSTER_KEY in snapshot.table("cluster"):
            self._cluster = snapshot.cluster.uuid
            wanted.pop(self._node or snapshot.cluster.master_node, None)
        with self._lock:
            for uuid in self._peers.keys() - wanted.keys():
                peer = self._peers.pop(uuid)
                peer.state = _State.STOPPED
                peer.wake.set()
            for uuid in wanted.keys() - self._peers.keys():
                peer = self._peers[uuid] = Peer(uuid, wanted[uuid])
                threading.Thread(
                    target=self._run,
                    args=(peer,),
                    name=f"store-{peer.name}",
                    daemon=True,
                ).start()

    def send(self, group: Group) -> None:
        """Send a group to the candidates that are up to date."""
        with self._lock:
            if self._deposed is not None:
                raise errors.TermError(*self._deposed.args)
            self._unwritten = group
            for peer in self._peers.values():
                if peer.state in _RECEIVING:
                    peer.queue.append(group)
                    peer.wake.set()

    def disown(self, group: Group) -> None:
        """Take back a group that did not become durable here."""
        with self._lock:
            self._unwritten = None
            for peer in self._peers.values():
                if peer.state in _RECEIVING:
                    self._set_stale_locked(
                        peer, f"revision {group.revision} was not written here"
                    )

    def wait(self, group: Group) -> None:
        """Block until a majority has a group, or the rest cannot be waited for."""
        with self._lock:
            self._unwritten = None
            self._awaited = group
            self._settled.clear()
            self._settle_locked()
        if not self._clock.wait(self._settled, ACK_TIMEOUT_S):
            self._give_up(group)
        with self._lock:
            self._awaited = None
            if self._deposed is not None:
                raise errors.TermError(*self._deposed.args)
            having, needed = self._count_locked(group)
        if having < needed:
            self._warn(group, having, needed)

    def status(self) -> dict[str, tuple[bool, int]]:
        """Return node uuid -> (is current, newest revision known to be there)."""
        with self._lock:
            return {
                uuid: (peer.state is _State.CURRENT, peer.acked)
                for uuid, peer in self._peers.items()
            }

    def close(self) -> None:
        """Stop sending; calls under way end by themselves."""
        with self._lock:
            for peer in self._peers.values():
                peer.state = _State.STOPPED
                peer.wake.set()
            self._peers = {}

    # Counting answers
    def _count_locked(self, group: Group) -> tuple[int, int]:
        """Return how many candidates have a group, and how many should, with us."""
        having = 1 + sum(
            1
            for peer in self._peers.values()
            if peer.acked >= group.revision and peer.state is _State.CURRENT
        )
        return having, (len(self._peers) + 1) // 2 + 1

    def _settle_locked(self) -> None:
        group = self._awaited
        if group is None:
            return
        having, needed = self._count_locked(group)
        is_open = any(
            not peer.is_tried
            or (peer.state is _State.CURRENT and peer.acked < group.revision)
            for peer in self._peers.values()
        )
        if having >= needed or not is_open or self._deposed is not None:
            self._settled.set()

    def _give_up(self, group: Group) -> None:
        with self._lock:
            for peer in self._peers.values():
                peer.is_tried = True
                if peer.state is _State.CURRENT and peer.acked < group.revision:
                    self._set_stale_locked(peer, f"no answer for {ACK_TIMEOUT_S:.0f} s")

    def _warn(self, group: Group, having: int, needed: int) -> None:
        now = self._clock.monotonic()
        if self._warned_at is not None and now - self._warned_at < WARN_EVERY_S:
            return
        self._warned_at = now
        _log.warning(
            "NO MAJORITY: revision %d is on %d master candidates, wanted %d; changes"
            " can be lost if this node fails",
            group.revision,
            having,
            needed,
        )

    def _set_stale_locked(self, peer: Peer, why: str) -> None:
        if peer.state is _State.CURRENT:
            _log.warning("master candidate %s is behind: %s", peer.name, why)
        if peer.state in _RECEIVING:
            peer.state = _State.STALE
        peer.queue.clear()
        peer.wake.set()
        self._settle_locked()

    def _depose(self, error: errors.TermError) -> None:
        with self._lock:
            self._deposed = error
            self._settled.set()
        if self._on_deposed is not None:
            self._on_deposed(error)

    # The thread of one candidate
    def _run(self, peer: Peer) -> None:
        while True:
            with self._lock:
                state, groups = peer.state, list(peer.queue)
                if state is _State.STOPPED:
                    return
                peer.queue.clear()
                peer.wake.clear()
            pause = None
            try:
                if state is _State.STALE:
                    self._repair(peer)
                elif groups:
                    self._push(peer, groups)
                elif peer.archive is not None:
                    self._copy_archive(peer)
                elif not self._clock.wait(peer.wake, IDLE_CHECK_S):
                    self._check(peer)
            except errors.TermError as err:
                self._depose(err)
                return
            except errors.GenericError as err:
                pause = self._note_failure(peer, str(err))
            except Exception as err:  # noqa: BLE001 - the copy must be kept up
                _log.exception("master candidate %s", peer.name)
                pause = self._note_failure(peer, repr(err))
            if pause is not None:
                self._clock.wait(peer.wake, pause)  # woken early only to stop

    def _copy_archive(self, peer: Peer) -> None:
        """Send some archived jobs and logs: a whole copy lacks them."""
        rows: list[Row] = []
        size = 0
        for row in peer.archive or ():
            rows.append(row)
            size += len(row[2] or b"")
            if size >= CATCH_UP_BYTES:
                break
        else:
            peer.archive = None
        if not rows:
            return
        try:
            self._apply(peer, peer.acked, wire.encode_batch((), rows))
        except errors.GenericError:
            peer.archive = self._archive()  # from the beginning
            raise

    def _archive(self) -> Iterator[Row]:
        for table in ("archive", "joblogs"):
            for key, data in self._backend.scan(table, ""):
                yield table, key, data

    def _note_failure(self, peer: Peer, why: str) -> float:
        with self._lock:
            if peer.failures == 0 and peer.state is not _State.CURRENT:
                _log.warning("master candidate %s cannot be used: %s", peer.name, why)
            peer.is_tried = True
            self._set_stale_locked(peer, why)
            if peer.state is not _State.STOPPED:
                peer.wake.clear()
            pause = RETRY_S[min(peer.failures, len(RETRY_S) - 1)]
            peer.failures += 1
        return pause

    def _push(self, peer: Peer, groups: Sequence[Group]) -> None:
        self._apply(peer, groups[0].base, self._encode(groups))
        self._note_ack(peer, groups[-1].revision)

    def _apply(self, peer: Peer, base: int, data: str) -> None:
        answer = self._call(peer, "store_apply", (self._term, base, data))
        if not answer.get("applied"):
            raise errors.StorageError(
                f"wanted revision {base}, found {answer.get('revision')}"
            )

    def _encode(self, groups: Sequence[Group]) -> str:
        """Return the text of groups; candidates are mostly sent the same."""
        key = (groups[0].digest, groups[-1].digest)
        known, text = self._encoded
        if known != key:
            text = wire.encode_batch(groups)
            self._encoded = (key, text)
        return text

    def _note_ack(self, peer: Peer, revision: int) -> None:
        with self._lock:
            peer.acked = revision
            peer.failures = 0
            self._settle_locked()

    def _repair(self, peer: Peer) -> None:
        status = self._status_of(peer)
        with self._lock:
            if peer.state is not _State.STALE:
                return
            # From here on new groups queue up, so that nothing falls between.
            peer.state = _State.CATCHING_UP
            if self._unwritten is not None:
                peer.queue.append(self._unwritten)
        revision = self._catch_up(
            peer, int(status["revision"]), bytes.fromhex(status["digest"])
        )
        with self._lock:
            if peer.state is not _State.CATCHING_UP:
                return
            peer.state, peer.is_tried = _State.CURRENT, True
            while peer.queue and peer.queue[0].revision <= revision:
                peer.queue.popleft()
        self._note_ack(peer, revision)
        _log.info("master candidate %s has revision %d", peer.name, revision)

    def _status_of(self, peer: Peer) -> Mapping[str, Any]:
        """Return where a candidate stands. Raises TermError if it knows better.

        The terms of another cluster, of which it may have something left, say nothing.
        """
        status = self._call(peer, "store_status", ())
        is_ours = status.get("cluster", "") in ("", self._cluster)
        if is_ours and int(status["term"]) > self._term:
            raise errors.TermError(
                f"term {self._term} is over: {peer.name} has seen term {status['term']}"
            )
        return status

    def _check(self, peer: Peer) -> None:
        revision = int(self._status_of(peer)["revision"])
        # Only this thread sends to it, so that nothing can be under way.
        if revision != peer.acked:
            raise errors.StorageError(f"wanted revision {peer.acked}, found {revision}")

    def _catch_up(self, peer: Peer, revision: int, digest: bytes) -> int:
        """Send what a candidate lacks; return the revision that it has then."""
        groups = self._backend.changes_since(revision, digest)
        if groups is None:
            copy = self._backend.dump()
            answer = self._call(
                peer, "store_install", (self._term, wire.encode_copy(copy))
            )
            peer.archive = self._archive()
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

    def _call(
        self, peer: Peer, procedure: str, args: Sequence[Any]
    ) -> Mapping[str, Any]:
        answer = self._replicate((peer.node,), procedure, args).get(peer.node)
        if answer is None:
            raise errors.StorageError(f"{procedure}: no answer")
        if answer.fail_msg is not None:
            if is_term_refusal(answer.fail_msg):
                raise errors.TermError(answer.fail_msg)
            raise errors.StorageError(f"{procedure}: {answer.fail_msg}")
        if not isinstance(answer.payload, Mapping):
            raise errors.StorageError(
                f"{procedure}: wanted a mapping, found {answer.payload!r}"
            )
        return answer.payload


def is_term_refusal(text: str) -> bool:
    """Tell whether a failure text says that the caller's term is over."""
    return "is over" in text and "term" in text.lower()
