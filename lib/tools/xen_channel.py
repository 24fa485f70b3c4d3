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
from typing import Final

from ganeti import errors
from ganeti.http import limits
from ganeti.pathutils import Paths
from ganeti.utils import authority

_CHUNK: Final = 1 << 18
_HANDSHAKE_S: Final = 20.0
#: A dead peer is noticed after about two minutes.
_KEEPALIVE: Final = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 5),
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


def relay(channel: ssl.SSLSocket, source: int, target: int) -> None:
    """Pass data both ways until one side ends.

    Args:
        channel: the connection; closed afterwards.
        source: file descriptor whose data goes to the peer.
        target: file descriptor that gets the peer's data.

    Raises:
        HypervisorError: the connection broke.
    """
    with channel:
        try:
            _relay(channel, source, target)
        except (ssl.SSLError, OSError) as err:
            raise errors.HypervisorError(f"the connection broke: {err}") from err


def _relay(channel: ssl.SSLSocket, source: int, target: int) -> None:
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
        ready = dict(poll.poll(0 if received else None))
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
