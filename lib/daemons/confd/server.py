"""The loop of a confd server: datagrams in, replies out, changes in between.

One thread does everything: it takes the requests that have arrived, looks for changes
if its source may have some, then answers. Datagrams without an answer are counted by
reason.
"""

import collections
import contextlib
import hashlib
import logging
import os
import selectors
import socket
from typing import Final, Protocol

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants.protocols import confd
from ganeti.daemons.confd.answers import Projection
from ganeti.protocols.confd import wire
from ganeti.protocols.confd.wire import REASONS

# Counters of a confd server, its limit of replies, and its cache of requests.
#
# Decisions without effects: the time is an argument.

#: Replies and bytes of replies per second: a key holder, or a recorded request with a
#: forged sender, must not turn this node into a flood.
MAX_REPLIES_PER_S: Final = 50_000
MAX_BYTES_PER_S: Final = 32 * 1024 * 1024
#: Salts that the replay cache keeps; the oldest ones go first.
_MAX_SALTS: Final = 100_000


class Counters:
    """Numbers since the start: requests answered, and datagrams dropped by reason."""

    def __init__(self) -> None:
        self.answered = 0
        self.reloads = 0
        self.dropped = dict.fromkeys(REASONS, 0)

    def as_text(self) -> str:
        """Return them as text; reasons without a drop are left out.

        >>> Counters().as_text()
        'answered 0, dropped 0, reloads 0'
        """
        total = sum(self.dropped.values())
        reasons = [f"{name} {count}" for name, count in self.dropped.items() if count]
        shown = f" ({', '.join(reasons)})" if reasons else ""
        return (
            f"answered {self.answered}, dropped {total}{shown}, reloads {self.reloads}"
        )


class ReplyLimit:
    """Bound of replies per second, counted in whole seconds."""

    def __init__(
        self, replies: int = MAX_REPLIES_PER_S, size: int = MAX_BYTES_PER_S
    ) -> None:
        self._limits = replies, size
        self._second = -1
        self._replies = self._bytes = 0

    def admits(self, size: int, now: float) -> bool:
        """Return whether a reply may be sent, and count it if so.

        Args:
            size: of the reply in bytes.
            now: seconds of any clock.
        """
        second = int(now)
        if second != self._second:
            self._second = second
            self._replies = self._bytes = 0
        if self._replies >= self._limits[0] or self._bytes + size > self._limits[1]:
            return False
        self._replies += 1
        self._bytes += size
        return True


class ReplayCache:
    """Salts of the requests that were answered while their times are acceptable."""

    def __init__(self, window_s: float, size: int = _MAX_SALTS) -> None:
        """Make an empty cache.

        Args:
            window_s: seconds for which a recorded request would be accepted again.
            size: entries at most.
        """
        self._window_s = window_s
        self._size = size
        self._seen: collections.OrderedDict[str, float] = collections.OrderedDict()

    def is_new(self, salt: str, now: float) -> bool:
        """Return whether a salt was not seen before, and remember it.

        Args:
            salt: of the request, its ``rsalt``.
            now: seconds of a monotonic clock.
        """
        seen = self._seen
        while seen and next(iter(seen.values())) + self._window_s < now:
            seen.popitem(last=False)
        if salt in seen:
            return False
        if len(seen) >= self._size:
            seen.popitem(last=False)
        seen[salt] = now
        return True


_log = logging.getLogger(__name__)

#: One byte more than a request may have, so that a larger one is noticed.
_READ_BYTES: Final = confd.MAX_UDP_DATA_SIZE + 1
#: Requests that are read, and then answered, between two looks for changes in a flood.
_BATCH: Final = 256
#: Kernel buffers: room for bursts while the configuration is read again.
_BUFFER_BYTES: Final = 4 * 1024 * 1024
#: Seconds between two lines of the log about dropped datagrams.
_LOG_EVERY_S: Final = 60.0


class Source(Protocol):
    """The origin of snapshots and of the key, in the daemon's ``main``."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when something may have changed."""

    def notice(self) -> None:
        """Take note that the descriptor is readable."""

    def is_due(self) -> bool:
        """Return whether to look for changes before a request is answered."""

    def update(self, projection: Projection) -> bool:
        """Bring a projection up to date; return whether anything changed."""

    def detects_replays(self) -> bool:
        """Return whether each request is answered only once."""

    def signers(self) -> wire.Signers:
        """Return the signing functions of the present key."""

    def next_look_s(self) -> float:
        """Return after how many seconds to look without requests; 0 if it is time."""


class Server:
    """A confd server on a bound socket."""

    def __init__(
        self,
        sock: socket.socket,
        source: Source,
        clock: Clock,
        *,
        detects_replays: bool = False,
    ) -> None:
        """Prepare to serve; the server owns the socket from now on.

        Args:
            sock: bound socket of UDP.
            source: see `Source`.
            clock: of this machine.
            detects_replays: answer each request only once, also if the source does not
                ask for it.
        """
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        self._sock = sock
        self._source = source
        self._clock = clock
        self.counters = Counters()
        self.projection = Projection()
        self._limit = ReplyLimit()
        # A request is accepted from one skew before its time until one skew after it.
        window = 2.0 * confd.CONFD_MAX_CLOCK_SKEW + 1
        self._replays = ReplayCache(window)
        self._amplified = ReplayCache(window)
        self._always_detects = self._detects_replays = detects_replays
        self._waker, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._is_stopping = False
        self._wants_report = False
        self._log_at = clock.monotonic() + _LOG_EVERY_S
        self._logged_drops = 0
        self._update()

    def serve(self) -> None:
        """Serve until `stop` is called, then close the socket."""
        with selectors.DefaultSelector() as selector, self._sock:
            selector.register(self._sock, selectors.EVENT_READ)
            selector.register(self._waker, selectors.EVENT_READ)
            selector.register(self._source, selectors.EVENT_READ)
            while not self._is_stopping:
                ready = {
                    key.fd
                    for key, _events in selector.select(self._source.next_look_s())
                }
                if self._waker in ready:
                    os.read(self._waker, 64)
                if self._source.fileno() in ready:
                    self._source.notice()
                if not self._source.next_look_s():
                    self._update()
                if self._sock.fileno() in ready:
                    self._answer_all()
                self._report()
        _log.info("%s", self.counters.as_text())

    def stop(self) -> None:
        """Make `serve` return; any thread may call this function."""
        self._is_stopping = True
        self._poke()

    def report(self) -> None:
        """Log the counters soon; a handler of a signal may call this function."""
        self._wants_report = True
        self._poke()

    def _poke(self) -> None:
        # A full pipe has earlier requests to wake up.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    def _update(self) -> None:
        try:
            if self._source.update(self.projection):
                self.counters.reloads += 1
        except Exception:  # noqa: BLE001 - logged below
            # The daemon goes on with what it has; the next look may succeed.
            _log.exception("looking for changes of the configuration failed")
        self._signers = self._source.signers()
        self._detects_replays = self._always_detects or self._source.detects_replays()

    def _answer_all(self) -> None:
        """Answer the requests that have arrived, a limited number of them."""
        arrived = self._receive()
        # Now, so that an answer has all that its request may know of.
        if self._source.is_due():
            self._update()
        answer_one = self._answer_one
        for data, sender in arrived:
            try:
                answer_one(data, sender)
            except wire.Dropped as drop:
                self._drop(drop.args[0], sender)
            except Exception:  # noqa: BLE001 - logged below
                self._drop("request", sender)
                _log.exception("a request failed")

    def _receive(self) -> list[tuple[bytes, tuple[str, int]]]:
        arrived, receive = [], self._sock.recvfrom
        for _ in range(_BATCH):
            try:
                arrived.append(receive(_READ_BYTES))
            except BlockingIOError:
                break
            except OSError as err:
                # For example a notice that an earlier reply did not reach its client.
                _log.debug("receiving: %s", err)
        return arrived

    def _answer_one(self, data: bytes, sender: tuple[str, int]) -> None:
        now = self._clock.time()
        magic, query = wire.open_request(data, self._signers, now)
        if self._detects_replays and not self._replays.is_new(
            query.rsalt, self._clock.monotonic()
        ):
            raise wire.Dropped("replay")
        message = self.projection.message(query)
        reply = wire.seal_reply(magic, message, query.rsalt, self._signers)
        if len(reply) > len(data) and not self._is_first(data):
            raise wire.Dropped("replay")
        if not self._limit.admits(len(reply), now):
            raise wire.Dropped("reply rate")
        try:
            self._sock.sendto(reply, sender)
        except OSError as err:
            raise wire.Dropped("send") from err
        self.counters.answered += 1

    def _is_first(self, data: bytes) -> bool:
        """Return whether a datagram has not been answered with a larger one before.

        Who has recorded it can send it again with the address of somebody else, who
        would get more than was sent. A client signs each request at its own time.
        """
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        return self._amplified.is_new(digest, self._clock.monotonic())

    def _drop(self, reason: str, sender: tuple[str, int]) -> None:
        self.counters.dropped[reason] += 1
        _log.debug("dropped a datagram of %s: %s", sender[0], reason)

    def _report(self) -> None:
        """Log the counters when asked, and every minute while datagrams are dropped."""
        now = self._clock.monotonic()
        if now >= self._log_at:
            self._log_at = now + _LOG_EVERY_S
            drops = sum(self.counters.dropped.values())
            self._wants_report |= drops != self._logged_drops
            self._logged_drops = drops
        if self._wants_report:
            self._wants_report = False
            _log.info("%s", self.counters.as_text())


def bind(address: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        GenericError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        sock.bind((address, port))
    except OSError as err:
        sock.close()
        raise errors.GenericError(
            f"cannot bind to {address} port {port}: {err.strerror}"
        ) from err
    return sock
