"""The encrypted connection of a migration: both ends have certificates of the cluster.

Data goes both ways, since xl's ends answer each other. The connection ends with TLS
close_notify, so a broken one is never mistaken for the end.
"""

import contextlib
import os
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority
from ganeti.protocols.http import limits

_CHUNK: Final = 1 << 18
#: Name of the protocol in which both ends use `say` and `hear`, in the handshake.
STOPPED: Final = "ganeti-xen-stopped"
_HANDSHAKE_S: Final = 20.0
#: Seconds in which a peer takes some data.
_STALL_S: Final = 60.0
#: A dead peer is noticed after about two minutes.
_KEEPALIVE: Final = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 5),
    # Milliseconds; a peer that confirms nothing any more is dead, too.
    (socket.TCP_USER_TIMEOUT, 60_000),
)


def context(paths: Paths, *, is_server: bool) -> ssl.SSLContext:
    """Return a context that accepts nodes of this cluster and nobody else.

    Raises:
        X509CertError: a certificate cannot be used.
    """
    try:
        is_own = authority.is_used(paths.server_pem)
        own = paths.client_pem if is_own else paths.server_pem
        kind = ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT
        made = ssl.SSLContext(kind)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.set_ciphers(limits.CIPHERS)
        # Whoever has a certificate of the authority is a node, whatever its name.
        made.check_hostname = False
        made.verify_mode = ssl.CERT_REQUIRED
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        made.load_cert_chain(own)
        if is_server:
            made.set_alpn_protocols([STOPPED])
        made.load_verify_locations(paths.server_pem)
    except (OSError, ValueError) as err:
        raise errors.X509CertError(
            f"{paths.server_pem}, {paths.client_pem}: not usable: {err}"
        ) from err
    return made


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        HypervisorError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(4)
    except OSError as err:
        sock.close()
        raise errors.HypervisorError(
            f"cannot listen on {address} port {port}: {err.strerror}"
        ) from err
    return sock


def accept(
    listener: socket.socket, tls: ssl.SSLContext, timeout_s: float
) -> ssl.SSLSocket:
    """Return the connection of the first node; others that connect are refused.

    Raises:
        HypervisorError: no node connects in time.
    """
    deadline = time.monotonic() + timeout_s
    refused = ""
    while (left_s := deadline - time.monotonic()) > 0:
        listener.settimeout(left_s)
        try:
            sock, peer = listener.accept()
        except TimeoutError:
            break
        except OSError as err:
            raise errors.HypervisorError(f"cannot accept a connection: {err}") from err
        try:
            return _established(tls, sock, is_server=True)
        except (OSError, ValueError) as err:
            refused = f"; refused {peer[0]}: {err}"
            sock.close()
    raise errors.HypervisorError(
        f"no node of the cluster connected within {timeout_s:g} seconds{refused}"
    )


def connect(address: str, port: int, tls: ssl.SSLContext) -> ssl.SSLSocket:
    """Return a connection to the node that waits for the guest.

    Raises:
        HypervisorError: there is none, or its certificate is not of this cluster.
    """
    sock = None
    try:
        sock = socket.create_connection((address, port), timeout=_HANDSHAKE_S)
        return _established(tls, sock, is_server=False)
    except (OSError, ValueError) as err:
        if sock is not None:
            sock.close()
        raise errors.HypervisorError(
            f"cannot connect to {address} port {port}: {err}"
        ) from err


def _established(
    tls: ssl.SSLContext, sock: socket.socket, *, is_server: bool
) -> ssl.SSLSocket:
    sock.settimeout(_HANDSHAKE_S)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    made = tls.wrap_socket(sock, server_side=is_server, suppress_ragged_eofs=False)
    made.setblocking(False)
    return made


def relay(
    channel: ssl.SSLSocket, source: int, target: int, life: int | None = None
) -> None:
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
        _relay(channel, source, target, life)


@contextlib.contextmanager
def _broken() -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, OSError) as err:
        raise errors.HypervisorError(f"the connection broke: {err}") from err


def drain(channel: ssl.SSLSocket, source: int) -> None:
    """Pass data to the peer until its source ends; the connection stays.

    Raises:
        HypervisorError: the connection broke.
    """
    with _broken():
        channel.settimeout(_STALL_S)
        while data := os.read(source, _CHUNK):
            channel.sendall(data)


def feed(channel: ssl.SSLSocket, target: int, pid: int) -> None:
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
            _feed(channel, target, ended)
    finally:
        os.close(ended)


def _feed(channel: ssl.SSLSocket, target: int, ended: int) -> None:
    channel.setblocking(False)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(channel, select.POLLIN)
    while True:
        received = _receive(channel)
        if received == b"":
            raise errors.HypervisorError("the peer ended before the guest was complete")
        if received:
            with contextlib.suppress(BrokenPipeError):
                _write_all(target, received)
        if ended in dict(poll.poll(0 if received else None)):
            return


def say(channel: ssl.SSLSocket, word: bytes) -> None:
    """Send a word to the peer.

    Raises:
        HypervisorError: the connection broke.
    """
    with _broken():
        channel.settimeout(_STALL_S)
        channel.sendall(word)


def hear(channel: ssl.SSLSocket, timeout_s: float) -> bytes:
    """Return the peer's word of one byte, empty if it ended the connection.

    Raises:
        HypervisorError: the connection broke, or the peer says nothing in time.
    """
    with _broken():
        channel.settimeout(timeout_s)
        return channel.recv(1)


def _relay(channel: ssl.SSLSocket, source: int, target: int, life: int | None) -> None:
    unsent = b""
    while True:
        # The library may have data that the socket does not have any more.
        received = _receive(channel)
        if received == b"":
            return
        if received:
            _write_all(target, received)
        if unsent:
            unsent = unsent[_send(channel, unsent) :]
        poll = select.poll()
        poll.register(channel, select.POLLIN | (select.POLLOUT if unsent else 0))
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
                    channel.unwrap()
                return


def _receive(channel: ssl.SSLSocket) -> bytes | None:
    """Return data, None if there is none yet; empty at the end."""
    try:
        return channel.recv(_CHUNK)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None
    except ssl.SSLZeroReturnError:
        return b""


def _send(channel: ssl.SSLSocket, data: bytes) -> int:
    try:
        return channel.send(data)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return 0


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
