"""The feed of events: commits of the store, for clients that follow the cluster.

One thread makes the events of each commit once, encodes them once and answers those who
wait. It runs while somebody asks; nobody pays for events that nobody wants. The newest
events are kept, so that a client that asks again misses none. A client that comes after
they are gone, or that knows the positions of another master, learns that, and reads
again the objects that it shows.
"""

import collections
import contextlib
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import misc
from ganeti.base.constants.protocols.events import Kind
from ganeti.base.timers import Timer, Timers
from ganeti.decisions import events
from ganeti.decisions.events import Event, Position
from ganeti.protocols.luxi.server import Encoded
from ganeti.store import Store

_log = logging.getLogger(__name__)

#: Events that are kept, and bytes of them.
_MAX_EVENTS: Final = 10_000
_MAX_BYTES: Final = 4 << 20
#: Events of one answer, and bytes after which no further one is added.
_MAX_ANSWER: Final = 500
_MAX_ANSWER_BYTES: Final = 256 << 10
#: Seconds without a question after which the thread ends with the next commit.
IDLE_S: Final = 600.0
_encoder: Final = msgspec.json.Encoder()


class _Kept(NamedTuple):
    """An event, encoded."""

    position: Position
    kind: Kind
    text: msgspec.Raw


class Answer(msgspec.Struct, frozen=True):
    """An answer to a client.

    Attributes:
        position: from which the client goes on.
        lost: whether events after its position are not known any more.
        events: the newer ones, in order.
    """

    position: str
    lost: bool = False
    events: tuple[msgspec.Raw, ...] = ()


class _Wait:
    """A client that waits; its kinds are empty for all."""

    __slots__ = ("future", "is_over", "kinds", "since", "timer")

    def __init__(
        self, since: Position | None, kinds: frozenset[Kind], *, is_over: bool
    ) -> None:
        self.since = since
        #: Its time is over, so it is answered in any case.
        self.is_over = is_over
        self.kinds = kinds
        self.future: Future[Encoded] = Future()
        self.timer: Timer | None = None


class Feed:
    """The feed; its thread starts with the first question. For use by many threads."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Prepare; nothing is read before the first question."""
        self._store = store
        self._clock = clock
        self._timers = Timers(clock)
        self._has_timers = self._is_stopped = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asked = 0.0
        self._waits: dict[_Wait, None] = {}
        #: The events after `_start` until `_end`; None while the thread begins.
        self._kept: collections.deque[_Kept] = collections.deque()
        self._bytes = 0
        self._start: Position | None = None
        self._end = Position(0, 0, 0)

    def wait(
        self, since: Position | None, kinds: Collection[Kind], timeout_s: float
    ) -> "Future[Encoded]":
        """Return what is newer than a position, now or when something is.

        The result is the text of an `Answer`, empty after the time limit. Cancel the
        future when the client has gone.

        Args:
            since: of the last answer; None asks only for the present position.
            kinds: of the wanted events; empty for all.
            timeout_s: at most 89 seconds.
        """
        limit_s = min(max(0.0, timeout_s), float(misc.LUXI_WFJC_TIMEOUT))
        wait = _Wait(since, frozenset(kinds), is_over=not limit_s)
        with self._lock:
            if self._is_stopped:
                # The connection ends soon, and the client asks the next daemon.
                return wait.future
            self._asked = self._clock.monotonic()
            self._begin_locked()
            self._waits[wait] = None
            answer = self._answer_locked(wait)
            if answer is None and limit_s:
                wait.timer = self._timers.after(limit_s, lambda: self._end_wait(wait))
        if answer is not None:
            _settle([(wait, answer)])
        wait.future.add_done_callback(lambda _future: self._forget(wait))
        return wait.future

    def stop(self) -> None:
        """Answer nobody any more; the thread ends when the store is closed."""
        with self._lock:
            self._is_stopped = True
        if self._has_timers:
            self._timers.stop()

    def _forget(self, wait: _Wait) -> None:
        with self._lock:
            self._waits.pop(wait, None)
            if wait.timer is not None:
                wait.timer.cancel()

    def _end_wait(self, wait: _Wait) -> None:
        wait.is_over = True
        self._answer_waits([wait])

    def _answer_waits(self, waits: Collection[_Wait] | None = None) -> None:
        """Answer some waits, or all, unless they go on."""
        with self._lock:
            answers = [
                (wait, self._answer_locked(wait))
                for wait in (self._waits if waits is None else waits)
            ]
        _settle((wait, answer) for wait, answer in answers if answer is not None)

    # With the lock
    def _begin_locked(self) -> None:
        if not self._has_timers:
            self._has_timers = True
            self._timers.start()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="events", daemon=True
            )
            self._thread.start()

    def _answer_locked(self, wait: _Wait) -> Answer | None:
        """Return the answer to a wait; None if it goes on, or the thread begins."""
        if self._start is None:
            return None
        since = wait.since
        if since is None:
            return Answer(str(self._end))
        if not self._start <= since <= self._end:
            return Answer(str(self._end), lost=True)
        newer: list[_Kept] = []
        for kept in reversed(self._kept):
            if kept.position <= since:
                break
            newer.append(kept)
        return self._select(wait, newer[::-1])

    def _select(self, wait: _Wait, newer: Sequence[_Kept]) -> Answer | None:
        texts: list[msgspec.Raw] = []
        size = 0
        for kept in newer:
            if wait.kinds and kept.kind not in wait.kinds:
                continue
            texts.append(kept.text)
            size += len(kept.text)
            if len(texts) >= _MAX_ANSWER or size >= _MAX_ANSWER_BYTES:
                return Answer(str(kept.position), events=tuple(texts))
        if texts or wait.is_over:
            return Answer(str(self._end), events=tuple(texts))
        # No second look at events that it does not want.
        wait.since = self._end
        return None

    def _keep_locked(self, new: Iterable[_Kept], end: Position) -> None:
        for kept in new:
            self._kept.append(kept)
            self._bytes += len(kept.text)
        self._end = end
        while len(self._kept) > _MAX_EVENTS or self._bytes > _MAX_BYTES:
            oldest = self._kept.popleft()
            self._bytes -= len(oldest.text)
            self._start = oldest.position

    def _reset_locked(self, start: Position | None) -> None:
        self._kept.clear()
        self._bytes = 0
        self._start = start
        self._end = start or self._end

    def _is_idle_locked(self) -> bool:
        quiet_s = self._clock.monotonic() - self._asked
        return not self._waits and quiet_s > IDLE_S

    # The thread
    def _run(self) -> None:
        try:
            while not self._follow():
                _log.info("events: some commits were missed, clients begin again")
        except Exception:  # noqa: BLE001 - logged; whoever asks next starts it again
            _log.exception("events: the feed ends until somebody asks again")
            self._finish()

    def _finish(self) -> None:
        """End the thread with its waits."""
        with self._lock:
            self._thread = None
            self._reset_locked(None)
            waits = list(self._waits)
        error = errors.GenericError("events: the feed was interrupted; ask again")
        for wait in waits:
            with contextlib.suppress(InvalidStateError):
                wait.future.set_exception(error)

    def _follow(self) -> bool:
        """Follow the store; return false if it went on without this thread."""
        documents = [
            self._store.read(*key) for key in (events.INCIDENTS, events.DEATHS)
        ]
        snapshot = self._store.snapshot()
        reader = events.Reader(snapshot, *documents)
        term = self._store.term.number
        with self._lock:
            self._reset_locked(Position(term, snapshot.revision, 0))
        self._answer_waits()
        try:
            for change_set in self._store.follow(snapshot.revision):
                revision = change_set.revision
                now = self._clock.time()
                new = reader.read(term, revision, change_set.changes, now)
                end = Position(term, revision, len(new))
                kept = list(map(_encoded, new))
                with self._lock:
                    self._keep_locked(kept, end)
                self._answer_waits()
                with self._lock:
                    if self._is_idle_locked():
                        self._thread = None
                        self._reset_locked(None)
                        return True
        except errors.StorageError:
            return False
        self._finish()
        return True


def _encoded(event: Event) -> _Kept:
    position = events.parse_position(event.position)
    try:
        text = _encoder.encode(event)
    except (ValueError, OverflowError):  # a text that is not Unicode
        text = _encoder.encode(msgspec.structs.replace(event, details={}))
    return _Kept(position, event.kind, msgspec.Raw(text))


def _settle(due: Iterable[tuple[_Wait, Answer]]) -> None:
    """Answer waits; equal answers are encoded once."""
    texts: dict[object, Encoded] = {}
    for wait, answer in due:
        key = (wait.since, wait.kinds, answer.position)
        text = texts.get(key)
        if text is None:
            text = texts[key] = Encoded(_encoder.encode(answer))
        with contextlib.suppress(InvalidStateError):
            wait.future.set_result(text)
