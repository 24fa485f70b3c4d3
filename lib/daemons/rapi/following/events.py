"""Streams of events for many clients, from one question to the master daemon.

One thread has all streams. It asks the master daemon for all events, makes the text of
each once, and decides once per view (rights and kinds) who gets it. So an event costs
what its views cost, and then a write per client. A client that begins elsewhere first
gets what it lacks, by questions of its own, and then joins the others.
"""

import collections
import functools
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from ganeti.base.clock import Clock
from ganeti.daemons.rapi.following import event_texts
from ganeti.daemons.rapi.following.event_texts import View
from ganeti.daemons.rapi.following.streams import Stream
from ganeti.daemons.rapi.problems import Refused
from ganeti.daemons.rapi.users import User
from ganeti.decisions.events import Position, parse_position
from ganeti.protocols.http.parking import Ticket
from ganeti.protocols.luxi.loop import Loop
from ganeti.protocols.luxi.shared import SharedClient

_log = logging.getLogger(__name__)

METHOD: Final = "WaitForEvents"
#: Streams at a time: of all users, and of one.
MAX_STREAMS: Final = 2000
MAX_PER_USER: Final = 1000
#: Seconds without a text after which a client gets a comment.
HEARTBEAT_S: Final = 15.0
#: Streams that get what they lack at a time: each gets up to 4 MiB, in many answers.
_MAX_CATCH_UPS: Final = 4
#: Seconds of a question, and until the master daemon counts as not answering.
_WAIT_S: Final = 60.0
_ANSWER_S: Final = 90.0
#: Seconds until the next question after one that failed.
_RETRY_S: Final = 1.0
#: Seconds between two looks at users and heartbeats.
_TICK_S: Final = 1.0
#: Pause after a round of writes: so many times its length, at most so many seconds.
#: Events in between are sent together, so many clients do not take a processor.
_REST: Final = 10.0
_MAX_REST_S: Final = 0.05
_LATER: Final = {"Retry-After": "10"}
_HEAD: Final = (
    "HTTP/1.1 200 OK\r\n"
    "Content-Type: text/event-stream\r\n"
    "Cache-Control: no-store\r\n"
    "X-Accel-Buffering: no\r\n"
    "X-Request-Id: {}\r\n"
    "Connection: close\r\n\r\n"
)


class Wanted(NamedTuple):
    """The request of a client.

    Attributes:
        user: who asks.
        kinds: of events; empty for all.
        since: position of the last event that it has; None for the present one.
        request: id of the request, for the log.
    """

    user: User
    kinds: frozenset[str]
    since: str | None
    request: str

    @property
    def view(self) -> View:
        """Return what the client may see and wants to."""
        return View(self.user.rights, self.kinds)


class Events:
    """The streams of all clients; the thread starts with the first one."""

    def __init__(
        self, client: SharedClient, clock: Clock, is_present: Callable[[User], bool]
    ) -> None:
        """Prepare; nothing is asked before the first client.

        Args:
            client: calls the master daemon; nothing else uses it.
            clock: measures pauses.
            is_present: whether a user still is as the users file has it.
        """
        self._client = client
        self._clock = clock
        self._is_present = is_present
        self._lock = threading.Lock()
        self._by_user: collections.Counter[str] = collections.Counter()
        self._count = 0
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None
        # Of the thread
        self._wanted: dict[Stream, Wanted] = {}
        self._views: dict[View, dict[Stream, None]] = {}
        #: Streams that have events after the position of all.
        self._ahead: dict[Stream, Position] = {}
        #: Until here all streams of the views have everything; None if nobody asks.
        self._position: Position | None = None
        self._is_asking = self._is_ticking = False
        self._catching_up = 0
        #: Streams that lack something and wait for others that do.
        self._lacking: collections.deque[Callable[[], None]] = collections.deque()

    # For other threads
    def admit(self, user: str) -> None:
        """Count a stream, which `start` must follow.

        Raises:
            Refused: 429 if the user has too many, 503 if all users have.
        """
        with self._lock:
            if self._by_user[user] >= MAX_PER_USER:
                text = f"user {user} has {MAX_PER_USER} streams of events already"
                raise Refused(HTTPStatus.TOO_MANY_REQUESTS, text, _LATER)
            if self._count >= MAX_STREAMS:
                text = f"there are {MAX_STREAMS} streams of events already"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, text, _LATER)
            self._by_user[user] += 1
            self._count += 1

    @property
    def count(self) -> int:
        """The number of streams."""
        return self._count

    def start(
        self,
        ticket: Ticket,
        wanted: Wanted,
        watch: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        """Begin a stream on the connection of a request.

        Args:
            ticket: of the request.
            wanted: what the client asks for.
            watch: gets a function that ends the stream, for any thread; returns one
                that is called when the stream has ended.
        """
        loop = self._running()

        def take(conn: Any) -> None:
            loop.run_soon(lambda: self._take(loop, conn, wanted, watch))

        ticket.hand_over(take)

    def close(self) -> None:
        """End all streams and the thread."""
        self._client.close()
        with self._lock:
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        loop.run_soon(self._end_all)
        loop.run_soon(loop.end)
        thread.join()
        loop.close()

    def _running(self) -> Loop:
        with self._lock:
            if self._loop is None:
                self._loop = Loop(self._clock)
                self._thread = threading.Thread(
                    target=self._loop.run, name="events", daemon=True
                )
                self._thread.start()
            return self._loop

    # The thread
    def _end_all(self) -> None:
        for stream in list(self._wanted):
            stream.end("the daemon ends")

    def _take(
        self,
        loop: Loop,
        conn: Any,
        wanted: Wanted,
        watch: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        ends: list[str] = []

        def end() -> None:
            if stream is not None:
                stream.end("the session has ended")

        def on_end(why: str) -> None:
            ends.append(why)
            forget()
            if stream is not None:
                self._forget(stream, why)

        stream: Stream | None = None
        forget = watch(lambda: loop.run_soon(end))
        stream = Stream(conn, loop, on_end)
        self._wanted[stream] = wanted
        if ends:  # the client has gone before
            self._forget(stream, ends[0])
            return
        stream.push(_HEAD.format(wanted.request).encode(), self._clock.monotonic())
        if not self._is_ticking:
            self._is_ticking = True
            loop.call_later(_TICK_S, functools.partial(self._tick, loop))
        self._catch_up(loop, stream, wanted.since)

    def _forget(self, stream: Stream, why: str) -> None:
        wanted = self._wanted.pop(stream, None)
        if wanted is None:
            return
        _log.debug("request %s: the stream has ended: %s", wanted.request, why)
        self._ahead.pop(stream, None)
        members = self._views.get(wanted.view, {})
        members.pop(stream, None)
        if not members:
            self._views.pop(wanted.view, None)
        name = wanted.user.name
        with self._lock:
            self._count -= 1
            self._by_user[name] -= 1
            if not self._by_user[name]:
                del self._by_user[name]

    # Events that one client lacks
    def _catch_up(self, loop: Loop, stream: Stream, since: str | None) -> None:
        wanted = self._wanted.get(stream)
        if wanted is None:
            return
        if since is None and self._position is not None:
            self._join(loop, stream, self._position)
            return
        if self._catching_up >= _MAX_CATCH_UPS:
            again = functools.partial(self._catch_up, loop, stream, since)
            self._lacking.append(again)
            return
        self._catching_up += 1
        then = functools.partial(self._caught_up, loop, stream, since)
        args = [since, sorted(wanted.kinds), 0]
        self._submit(loop, args, then)

    def _submit(self, loop: Loop, args: list[Any], then: Callable[[Any], None]) -> None:
        """Ask the master daemon; the function gets the answer, None for an error."""

        def done(result: Any, error: Exception | None) -> None:
            if error is not None:
                _log.info("events: the master daemon does not answer: %s", error)
            loop.run_soon(lambda: then(None if error is not None else result))

        self._client.submit(METHOD, args, done, timeout_s=_ANSWER_S)

    def _caught_up(
        self, loop: Loop, stream: Stream, since: str | None, answer: Any
    ) -> None:
        self._catching_up -= 1
        self._take_answer(loop, stream, since, answer)
        # Those that have gone since need no place.
        while self._lacking and self._catching_up < _MAX_CATCH_UPS:
            self._lacking.popleft()()

    def _take_answer(
        self, loop: Loop, stream: Stream, since: str | None, answer: Any
    ) -> None:
        wanted = self._wanted.get(stream)
        if wanted is None:
            return
        again = functools.partial(self._catch_up, loop, stream)
        if answer is None:
            loop.call_later(_RETRY_S, functools.partial(again, since))
            return
        place, now = answer["position"], self._clock.monotonic()
        if answer["lost"]:
            stream.push(event_texts.position_text(place, is_lost=True), now)
        text = wanted.view.texts(event_texts.encoded(answer["events"]))
        if text:
            stream.push(text, now)
        position = parse_position(place)
        if self._position is None or position >= self._position:
            self._join(loop, stream, position)
        elif stream.unsent:
            stream.on_drained = functools.partial(again, place)
        else:
            again(place)

    def _join(self, loop: Loop, stream: Stream, position: Position) -> None:
        """Let a client get what all get; it has everything until a position."""
        text = event_texts.position_text(str(position), is_lost=False)
        stream.push(text, self._clock.monotonic())
        wanted = self._wanted.get(stream)
        if wanted is None:
            return
        self._views.setdefault(wanted.view, {})[stream] = None
        if self._position is None:
            self._position = position
        elif position > self._position:
            self._ahead[stream] = position
        self._ask(loop)

    # Events for all
    def _ask(self, loop: Loop) -> None:
        if self._is_asking or self._position is None:
            return
        if not self._wanted:
            self._position = None
            return
        self._is_asking = True
        args = [str(self._position), [], _WAIT_S]
        self._submit(loop, args, functools.partial(self._got, loop))

    def _got(self, loop: Loop, answer: Any) -> None:
        began = self._clock.monotonic()
        pause_s = _RETRY_S
        try:
            if answer is not None:
                self._pass_on(answer, began)
                took_s = self._clock.monotonic() - began
                pause_s = min(_MAX_REST_S, _REST * took_s)
        finally:
            loop.call_later(pause_s, functools.partial(self._asked, loop))

    def _asked(self, loop: Loop) -> None:
        self._is_asking = False
        self._ask(loop)

    def _pass_on(self, answer: Any, now: float) -> None:
        """Send the events of an answer to all whose view shows them."""
        position = parse_position(answer["position"])
        events = event_texts.encoded(answer["events"])
        lost = b""
        if answer["lost"]:
            lost = event_texts.position_text(str(position), is_lost=True)
        for view, members in list(self._views.items()):
            text = lost + view.texts(events)
            if not text:
                continue
            for stream in list(members):
                if stream not in self._ahead:
                    stream.push(text, now)
        for stream, ahead in list(self._ahead.items()):
            later = [e for e in events if parse_position(e[0]["position"]) > ahead]
            text = lost if position > ahead else b""
            text += self._wanted[stream].view.texts(later)
            if text:
                stream.push(text, now)
            if position >= ahead:
                self._ahead.pop(stream, None)
        self._position = position

    def _tick(self, loop: Loop) -> None:
        """End the streams of users who have changed; send heartbeats."""
        now, present = self._clock.monotonic(), dict[int, bool]()
        beat = event_texts.HEARTBEAT
        if self._position is not None:
            beat = event_texts.heartbeat_at(str(self._position))
        for stream, wanted in list(self._wanted.items()):
            user = wanted.user
            if id(user) not in present:
                end = user.secret.expires
                is_over = end is not None and self._clock.time() >= end
                present[id(user)] = not is_over and self._is_present(user)
            if not present[id(user)]:
                stream.end(f"user {user.name} or the rights have changed")
            elif now - stream.sent_at >= HEARTBEAT_S:
                has_joined = stream in self._views.get(wanted.view, ())
                is_at = has_joined and stream not in self._ahead
                stream.push(beat if is_at else event_texts.HEARTBEAT, now)
        if self._wanted:
            loop.call_later(_TICK_S, functools.partial(self._tick, loop))
        else:
            self._is_ticking = False
