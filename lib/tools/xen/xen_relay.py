"""The connection of a migration, whose ends are nodes of the cluster.

Data goes both ways, since xl's ends answer each other.
"""

import contextlib
import os
import select
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors
from ganeti.tools import channel as channels
from ganeti.tools.channel import Channel, ChannelError, End

_CHUNK: Final = 1 << 18
#: Name of the protocol in which both ends use `say` and `hear`, in the handshake.
STOPPED: Final = "ganeti-xen-stopped"
_CONNECT_S: Final = 20.0
#: Seconds in which a peer takes some data.
_STALL_S: Final = 60.0
#: Milliseconds; a peer that confirms nothing any more is dead, too.
_UNCONFIRMED_MS: Final = 60_000


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        HypervisorError: the address cannot be used.
    """
    try:
        return channels.listen(address, port)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot listen on {address} port {port}: {err.strerror}"
        ) from err


def accept(listener: socket.socket, end: End, timeout_s: float) -> Channel:
    """Return the connection of the first node; others that connect are refused.

    Raises:
        HypervisorError: no node connects in time.
    """
    end.tls.set_alpn_protocols([STOPPED])
    try:
        channel = channels.accept(
            listener, end, timeout_s, absence="no node of the cluster connected"
        )
    except ChannelError as err:
        raise errors.HypervisorError(str(err)) from err
    except OSError as err:
        raise errors.HypervisorError(f"cannot accept a connection: {err}") from err
    return _impatient(channel)


def connect(address: str, port: int, end: End) -> Channel:
    """Return a connection to the node that waits for the guest.

    Raises:
        HypervisorError: there is none, or its certificate is not of this cluster.
    """
    try:
        return _impatient(channels.connect((address, port), end, _CONNECT_S))
    except (OSError, ChannelError) as err:
        raise errors.HypervisorError(
            f"cannot connect to {address} port {port}: {err}"
        ) from err


def _impatient(channel: Channel) -> Channel:
    channel.sock.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNCONFIRMED_MS
    )
    return channel


def relay(channel: Channel, source: int, target: int, life: int | None = None) -> None:
    """Pass data both ways until one side ends.

    Args:
        channel: the connection; closed afterwards.
        source: file descriptor whose data goes to the peer.
        target: file descriptor that gets the peer's data.
        life: end of a pipe; when the other end is closed, the connection breaks.

    Raises:
        HypervisorError: the connection broke.
    """
    with channel, _broken():
        _relay(channel.sock, source, target, life)


@contextlib.contextmanager
def _broken() -> Iterator[None]:
    try:
        yield
    except (ChannelError, OSError) as err:
        raise errors.HypervisorError(f"the connection broke: {err}") from err


def drain(channel: Channel, source: int) -> None:
    """Pass data to the peer until its source ends; the connection stays.

    Raises:
        HypervisorError: the connection broke.
    """
    with _broken():
        while data := os.read(source, _CHUNK):
            channel.send(data, _STALL_S)


def feed(channel: Channel, target: int, pid: int) -> None:
    """Pass the peer's data to a child until this has ended; the connection stays.

    Args:
        channel: the connection.
        target: file descriptor that the child reads.
        pid: of the child, which nobody has waited for.

    Raises:
        HypervisorError: the connection broke or ended.
    """
    ended = os.pidfd_open(pid)
    try:
        with _broken():
            _feed(channel.sock, target, ended)
    finally:
        os.close(ended)


def _feed(sock: ssl.SSLSocket, target: int, ended: int) -> None:
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(sock, select.POLLIN)
    while True:
        received = _receive(sock)
        if received == b"":
            raise errors.HypervisorError("the peer ended before the guest was complete")
        if received:
            with contextlib.suppress(BrokenPipeError):
                _write_all(target, received)
        if ended in dict(poll.poll(0 if received else None)):
            return


def say(channel: Channel, word: bytes) -> None:
    """Send a word to the peer.

    Raises:
        HypervisorError: the connection broke.
    """
    with _broken():
        channel.send(word, _STALL_S)


def hear(channel: Channel, timeout_s: float) -> bytes:
    """Return the peer's word of one byte, empty if it ended the connection.

    Raises:
        HypervisorError: the connection broke, or the peer says nothing in time.
    """
    with _broken():
        return channel.receive(1, timeout_s)


def _relay(sock: ssl.SSLSocket, source: int, target: int, life: int | None) -> None:
    unsent = b""
    while True:
        # The library may have data that the socket does not have any more.
        received = _receive(sock)
        if received == b"":
            return
        if received:
            _write_all(target, received)
        if unsent:
            unsent = unsent[_send(sock, unsent) :]
        poll = select.poll()
        poll.register(sock, select.POLLIN | (select.POLLOUT if unsent else 0))
        if not unsent:
            poll.register(source, select.POLLIN)
        if life is not None:
            poll.register(life, select.POLLIN)
        ready = dict(poll.poll(0 if received else None))
        if life in ready:
            raise errors.HypervisorError("ended by the program that began it")
        if source in ready:
            unsent = os.read(source, _CHUNK)
            if not unsent:
                with contextlib.suppress(ssl.SSLWantReadError, OSError):
                    sock.unwrap()
                return


def _receive(sock: ssl.SSLSocket) -> bytes | None:
    """Return data, None if there is none yet; empty at the end."""
    try:
        return sock.recv(_CHUNK)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None
    except ssl.SSLZeroReturnError:
        return b""


def _send(sock: ssl.SSLSocket, data: bytes) -> int:
    try:
        return sock.send(data)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return 0


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
