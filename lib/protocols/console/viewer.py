"""The viewer's side of a console: a connection to the node daemon, and a relay.

For commands, which have one console and wait for it alone.
"""

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

import msgspec

from ganeti.base import errors
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority
from ganeti.protocols.console import stream
from ganeti.protocols.http import limits

#: Seconds for the connection, and for each step of the opening.
_OPEN_S: Final = 15.0
#: Bytes for one side that wait before the other one is not read.
_ENOUGH: Final = 64 * 1024
#: Bytes that are written to a file at a time, if that may wait.
_CAREFUL: Final = 1024
#: Errors of a descriptor whose other side has gone.
_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EIO})


class Place(msgspec.Struct, frozen=True):
    """An answer of the master about a console; see the LUXI method ``OpenConsole``."""

    instance: str
    uuid: str
    kind: stream.Kind
    node: str
    node_uuid: str
    address: str
    port: int
    ticket: str

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Return the place in an answer. Raises Malformed."""
        try:
            return msgspec.convert(answer, cls)
        except msgspec.ValidationError as err:
            raise stream.Malformed(f"the answer of the master daemon: {err}") from err


class Connection:
    """An open console; nothing waits but `connect`."""

    def __init__(self, sock: ssl.SSLSocket, first: bytes) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._decoder = stream.Decoder()
        self._first = first
        self.out = bytearray()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def send(self, data: bytes) -> None:
        """Have data of the viewer sent."""
        self.out += stream.frames_of(data)

    def end_input(self) -> None:
        """Pass on that nothing more is sent."""
        self.out += stream.frame(stream.EOF)

    def flush_all(self) -> None:
        """Send everything, and wait for that. Raises OSError."""
        self._sock.settimeout(_OPEN_S)
        try:
            self._sock.sendall(self.out)
            self.out.clear()
        finally:
            self._sock.setblocking(False)

    def flush(self) -> None:
        """Send what the node takes now. Raises OSError."""
        try:
            while self.out:
                del self.out[: self._sock.send(self.out[: stream.MAX_DATA])]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return

    def receive(self) -> Iterator[tuple[int, bytes]] | None:
        """Return the frames that have come, None if there are no bytes now.

        Raises:
            Malformed: the node does not keep to the form.
            EOFError: the connection has ended without a last word.
        """
        data, self._first = self._first, b""
        if not data:
            try:
                data = self._sock.recv(stream.MAX_DATA)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None
            except OSError as err:
                raise EOFError(str(err)) from err
            if not data:
                raise EOFError("the connection was closed")
        return self._decoder.feed(data)


def connect(
    place: Place, paths: Paths, *, viewer: stream.Mode = "refuse", session: str = ""
) -> Connection:
    """Present a ticket to its node, and return the console.

    Raises:
        Refused: by the node, with its reason.
        RpcError: the node daemon cannot be reached, or proves no identity.
    """
    opening = stream.Opening(
        ticket=place.ticket,
        instance=place.uuid,
        kind=place.kind,
        session=session,
        viewer=viewer,
    )
    try:
        plain = socket.create_connection((place.address, place.port), _OPEN_S)
        try:
            netutils.probe_when_idle(plain)
            context = _context(paths)
            sock = context.wrap_socket(plain, server_hostname=place.node_uuid)
        except OSError:
            plain.close()
            raise
        try:
            sock.sendall(stream.request_head(opening, place.node))
            return Connection(sock, _answer(sock))
        except BaseException:
            sock.close()
            raise
    except (OSError, ValueError) as err:
        raise errors.RpcError(
            f"the node daemon of {place.node} at {place.address}:{place.port}: {err}"
        ) from err


def _answer(sock: ssl.SSLSocket) -> bytes:
    """Wait for the answer; return what follows its head."""
    reader = stream.AnswerReader()
    while True:
        data = sock.recv(stream.MAX_HEAD)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed without an answer")
        rest = reader.feed(data)
        if rest is not None:
            return rest


def _context(paths: Paths) -> ssl.SSLContext:
    """Return the TLS of calls of nodes, with this node's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(limits.CIPHERS)
    # Without certificates of their own, all nodes have that of the cluster, whose name
    # proves nothing.
    context.check_hostname = authority.is_used(paths.server_pem)
    own = paths.client_pem
    context.load_cert_chain(own if os.path.exists(own) else paths.server_pem)
    context.load_verify_locations(paths.server_pem)
    return context


class Local(NamedTuple):
    """This side of a relay.

    Attributes:
        source: descriptor whose bytes go to the console.
        target: descriptor that gets those of the console. If it is the same one, its
            end is that of the relay; else output follows until the console ends.
        escape: byte of the source that ends the relay; empty for none.
    """

    source: int
    target: int
    escape: bytes = b""


def relay(
    console: Connection, local: Local, on_notice: Callable[[stream.Message], None]
) -> stream.Message | None:
    """Pass bytes both ways until a side ends.

    Args:
        console: the console.
        local: this side.
        on_notice: called with each notice of the node.

    Returns:
        the last word of the node; None if this side has ended.

    Raises:
        RpcError: the connection to the node has ended without a last word.
    """
    waiting = bytearray()
    source: int | None = local.source
    try:
        while True:
            while len(waiting) < _ENOUGH and (frames := console.receive()) is not None:
                last = _take(frames, waiting, on_notice)
                if last is not None:
                    _write_rest(local.target, waiting)
                    return last
            if not _write(local.target, waiting):
                return None
            if source is not None and not _read(console, local):
                if local.source == local.target:
                    return None
                source = None
            console.flush()
            _wait(console, source, local.target, waiting)
    except _Escape:
        return None
    except (OSError, EOFError, stream.Malformed) as err:
        raise errors.RpcError(f"the connection to the node was lost: {err}") from err


def _take(
    frames: Iterable[tuple[int, bytes]],
    waiting: bytearray,
    on_notice: Callable[[stream.Message], None],
) -> stream.Message | None:
    """Take frames of a node; return its last word, None before it."""
    for kind, content in frames:
        if kind == stream.DATA:
            waiting += content
        elif kind == stream.NOTICE:
            on_notice(stream.parse_message(content))
        elif kind == stream.END:
            return stream.parse_message(content)
    return None


def _wait(
    console: Connection, source: int | None, target: int, waiting: bytearray
) -> None:
    """Wait until something can be moved."""
    wanted = [
        (console.fileno(), select.POLLIN, len(waiting) < _ENOUGH),
        (console.fileno(), select.POLLOUT, bool(console.out)),
        (target, select.POLLOUT, bool(waiting)),
    ]
    if source is not None:
        wanted.append((source, select.POLLIN, len(console.out) < _ENOUGH))
    events: dict[int, int] = {}
    for fd, event, is_wanted in wanted:
        if is_wanted:
            events[fd] = events.get(fd, 0) | event
    poll = select.poll()
    for fd, event in events.items():
        poll.register(fd, event)
    poll.poll()


class _Escape(Exception):
    """The escape key was pressed."""


def _is_ready(fd: int, event: int) -> bool:
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(0))


def _read(console: Connection, local: Local) -> bool:
    """Take what the source has; return whether it goes on. Raises _Escape."""
    if len(console.out) >= _ENOUGH or not _is_ready(local.source, select.POLLIN):
        return True
    try:
        data = os.read(local.source, stream.MAX_DATA)
    except OSError as err:
        if err.errno in _GONE:
            return False
        raise
    before, escape = data, b""
    if local.escape:
        before, escape, _rest = data.partition(local.escape)
    console.send(before)
    if escape:
        console.flush_all()
        raise _Escape
    if not data:
        console.end_input()
    return bool(data)


def _write(target: int, waiting: bytearray) -> bool:
    """Write what the target takes; return whether it still takes something."""
    if not waiting or not _is_ready(target, select.POLLOUT):
        return True
    try:
        # A terminal that is ready for one byte may wait for the reader of many.
        size = _CAREFUL if os.get_blocking(target) else len(waiting)
        del waiting[: os.write(target, waiting[:size])]
    except BlockingIOError:
        return True
    except OSError as err:
        if err.errno in _GONE:
            return False
        raise
    return True


def _write_rest(target: int, waiting: bytearray) -> None:
    """Write what came before the last word, as long as somebody takes it."""
    while waiting and _write(target, waiting):
        poll = select.poll()
        poll.register(target, select.POLLOUT)
        if not poll.poll(_OPEN_S * 1000):
            return
