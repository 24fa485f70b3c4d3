"""Connection of two ``import-export`` programs: TLS with pinned certificates.

Each side has its own certificate and knows the other's. The data ends with TLS
close_notify, so a broken connection is never mistaken for the end.
"""

import contextlib
import select
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from OpenSSL import SSL

from ganeti.base.tls import x509
from ganeti.protocols.http import limits

#: A dead peer is noticed after about two minutes.
_KEEPALIVE: Final = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 5),
)
_RETRY_S: Final = 1.0
#: Seconds that a connection has for its handshake; the next one waits for that.
_HANDSHAKE_S: Final = 10.0


class TransferError(Exception):
    """Failure of a transfer; the text has the reason."""


def context(key: str, certificate: str, peer: str) -> SSL.Context:
    """Return a context that accepts one peer.

    Args:
        key: PEM file.
        certificate: PEM file.
        peer: PEM file with the certificate that the other side must have.

    Raises:
        TransferError: a file cannot be used.
    """
    try:
        wanted = x509.digest(x509.load_certificate(peer))
        new_context = SSL.Context(SSL.TLS_METHOD)
        new_context.set_min_proto_version(SSL.TLS1_2_VERSION)
        new_context.set_cipher_list(limits.CIPHERS.encode())
        new_context.use_certificate_file(certificate)
        new_context.use_privatekey_file(key)
        new_context.check_privatekey()
        new_context.load_verify_locations(peer)
    except Exception as err:
        raise TransferError(f"{certificate}, {peer}: not usable: {err}") from err

    def verify(_conn: Any, certificate: Any, _error: int, _depth: int, ok: int) -> bool:
        return bool(ok) and x509.digest(certificate.to_cryptography()) == wanted

    new_context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verify)
    return new_context


def bind(address: str, port: int, *, ipv6: bool) -> socket.socket:
    """Return a listening socket.

    Raises:
        TransferError: the address cannot be used.
    """
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(1)
    except OSError as err:
        sock.close()
        raise TransferError(f"cannot listen on {address} port {port}: {err}") from err
    return sock


def accept(
    listener: socket.socket,
    tls: SSL.Context,
    timeout_s: float,
    note: Callable[[str], None] = lambda _text: None,
) -> "Channel":
    """Wait for the peer's connection; others, such as port scanners, are refused.

    Args:
        listener: a listening socket.
        tls: accepts the peer alone.
        timeout_s: time until the peer's handshake must be done.
        note: gets a line about each connection that was refused.

    Raises:
        TransferError: the peer did not connect in time.
    """
    deadline = time.monotonic() + timeout_s
    refused = ""
    while (left_s := deadline - time.monotonic()) > 0:
        listener.settimeout(left_s)
        try:
            sock, address = listener.accept()
        except TimeoutError:
            break
        connection = SSL.Connection(tls, sock)
        connection.set_accept_state()
        limit = min(deadline, time.monotonic() + _HANDSHAKE_S)
        try:
            return _established(connection, sock, limit)
        except TransferError as err:
            refused = f"a connection from {address[0]} was refused: {err}"
            note(refused)
    more = f"; {refused}" if refused else ""
    raise TransferError(
        f"the other side did not connect within {timeout_s:g} seconds{more}"
    )


def connect(
    address: tuple[str, int],
    tls: SSL.Context,
    *,
    ipv6: bool,
    retries: int,
    timeout_s: float,
) -> "Channel":
    """Connect to the peer; retry if it does not answer.

    Raises:
        TransferError: no connection in time, or another peer.
    """
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    for left in range(retries, -1, -1):
        deadline = time.monotonic() + timeout_s
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            sock.connect(address)
        except OSError as err:
            sock.close()
            if left:
                time.sleep(_RETRY_S)
                continue
            raise TransferError(
                f"cannot connect to {address[0]}:{address[1]}: {err}"
            ) from err
        connection = SSL.Connection(tls, sock)
        connection.set_connect_state()
        return _established(connection, sock, deadline)
    raise TransferError("no connection attempt was made")


def _established(
    connection: SSL.Connection, sock: socket.socket, deadline: float
) -> "Channel":
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    channel = Channel(connection, sock)
    try:
        channel.handshake(deadline)
    except BaseException:
        channel.close()
        raise
    return channel


class Channel:
    """A connection with data in one direction and close_notify in both."""

    def __init__(self, connection: SSL.Connection, sock: socket.socket) -> None:
        self._connection = connection
        self._sock = sock

    def handshake(self, deadline: float) -> None:
        """Do the TLS handshake, which checks the peer's certificate.

        Raises:
            TransferError: the handshake failed.
        """
        self._repeat(self._connection.do_handshake, "TLS handshake", deadline)

    def receive(self, size: int) -> bytes:
        """Return some data, empty at the end.

        Raises:
            TransferError: the connection broke.
        """
        try:
            data: bytes = self._repeat(
                lambda: self._connection.recv(size), "receiving data"
            )
        except SSL.ZeroReturnError:
            return b""
        return data

    def send(self, data: bytes) -> None:
        """Send data completely.

        Raises:
            TransferError: the connection broke.
        """
        rest = memoryview(data)
        while rest:
            rest = rest[self._send_some(rest[:_RECORD]) :]

    def _send_some(self, part: memoryview) -> int:
        return int(self._repeat(lambda: self._connection.send(part), "sending"))

    def finish(self, *, wait: bool) -> None:
        """Send close_notify; with ``wait`` until the peer has sent its own.

        Raises:
            TransferError: the peer closed without it, so it may lack data.
        """
        is_over = self._repeat(self._connection.shutdown, "the end of the transfer")
        if not wait or is_over:
            return
        with contextlib.suppress(SSL.ZeroReturnError):
            self._repeat(lambda: self._connection.recv(1), "the end of the transfer")

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _repeat(
        self, call: Callable[[], Any], doing: str, deadline: float | None = None
    ) -> Any:
        while True:
            try:
                return call()
            except SSL.WantReadError:
                self._wait(select.POLLIN, doing, deadline)
            except SSL.WantWriteError:
                self._wait(select.POLLOUT, doing, deadline)
            except SSL.ZeroReturnError:
                raise
            except (SSL.Error, OSError) as err:
                text = str(err) if err.args and err.args != ([],) else "connection lost"
                raise TransferError(f"{doing}: {text}") from err

    def _wait(self, event: int, doing: str, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self._sock, event)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not poll.poll(None if left is None else left * 1000):
            raise TransferError(f"{doing}: timed out")


#: Most bytes passed to OpenSSL at once.
_RECORD: Final = 1 << 20
