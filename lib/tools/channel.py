"""TLS connections between helper programs, whose ends know whom they accept.

A connection ends with TLS close_notify, so a broken one is never mistaken for the end.
"""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority, x509
from ganeti.protocols.http import limits

#: A dead peer is noticed after about two minutes.
_KEEPALIVE: Final = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 5),
)
#: Seconds that a connection has for its handshake; the next one waits for that.
_HANDSHAKE_S: Final = 20.0
#: Most bytes passed to OpenSSL at once.
_RECORD: Final = 1 << 20


class ChannelError(Exception):
    """A connection failed; the text has the reason."""


class End(NamedTuple):
    """One end of a connection.

    Attributes:
        tls: its certificate, and the authorities of certificates that it accepts.
        is_server: it accepts the connection.
        peer: digest of the only certificate that it accepts; empty for any of them.
    """

    tls: ssl.SSLContext
    is_server: bool
    peer: str = ""


def pinned(key: str, certificate: str, peer: str, *, is_server: bool) -> End:
    """Return an end that accepts one certificate.

    Args:
        key: PEM file.
        certificate: PEM file.
        peer: PEM file with the certificate that the other end must have.
        is_server: the end accepts the connection.

    Raises:
        OSError, ValueError, X509CertError: a file cannot be used.
    """
    digest = x509.digest(x509.load_certificate(peer))
    return End(_context(certificate, key, peer, is_server=is_server), is_server, digest)


def of_cluster(paths: Paths, *, is_server: bool) -> End:
    """Return an end that accepts nodes of this cluster and nobody else.

    Raises:
        X509CertError: a certificate cannot be used.
    """
    try:
        is_own = authority.is_used(paths.server_pem)
        own = paths.client_pem if is_own else paths.server_pem
        return End(
            _context(own, None, paths.server_pem, is_server=is_server), is_server
        )
    except (OSError, ValueError) as err:
        raise errors.X509CertError(
            f"{paths.server_pem}, {paths.client_pem}: not usable: {err}"
        ) from err


def _context(
    certificate: str, key: str | None, accepted: str, *, is_server: bool
) -> ssl.SSLContext:
    kind = ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT
    made = ssl.SSLContext(kind)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers(limits.CIPHERS)
    # Whoever has an accepted certificate is the peer, whatever its name.
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    made.load_cert_chain(certificate, key)
    made.load_verify_locations(accepted)
    return made


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        OSError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(4)
    except OSError:
        sock.close()
        raise
    return sock


def accept(
    listener: socket.socket,
    end: End,
    timeout_s: float,
    *,
    absence: str,
    note: Callable[[str], None] = lambda _text: None,
) -> "Channel":
    """Wait for the peer's connection; others, such as port scanners, are refused.

    Args:
        listener: a listening socket.
        end: accepts the peer alone.
        timeout_s: time until the peer's handshake must be done.
        absence: words for the error that there is no peer.
        note: gets a line about each connection that was refused.

    Raises:
        OSError: the socket accepts nobody.
        ChannelError: the peer did not connect in time.
    """
    deadline = time.monotonic() + timeout_s
    refused = ""
    while (left_s := deadline - time.monotonic()) > 0:
        listener.settimeout(left_s)
        try:
            sock, address = listener.accept()
        except TimeoutError:
            break
        limit = min(deadline, time.monotonic() + _HANDSHAKE_S)
        try:
            return _established(sock, end, limit)
        except ChannelError as err:
            refused = f"a connection from {address[0]} was refused: {err}"
            note(refused)
    more = f"; {refused}" if refused else ""
    raise ChannelError(f"{absence} within {timeout_s:g} seconds{more}")


def connect(address: tuple[str, int], end: End, timeout_s: float) -> "Channel":
    """Return a connection to the peer.

    Raises:
        OSError: the address does not answer.
        ChannelError: another peer, or no handshake in time.
    """
    deadline = time.monotonic() + timeout_s
    return _established(
        socket.create_connection(address, timeout=timeout_s), end, deadline
    )


def _established(sock: socket.socket, end: End, deadline: float) -> "Channel":
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        wrapped = end.tls.wrap_socket(
            sock,
            server_side=end.is_server,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
        )
    except (OSError, ValueError) as err:
        sock.close()
        raise ChannelError(f"TLS handshake: {err}") from err
    channel = Channel(wrapped)
    try:
        channel.handshake(end.peer, deadline)
    except BaseException:
        channel.close()
        raise
    return channel


class Channel:
    """An established connection."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()

    def handshake(self, peer: str, deadline: float) -> None:
        """Do the TLS handshake, which checks the peer's certificate.

        Raises:
            ChannelError: the handshake failed, or the digest is another one.
        """
        self._repeat(self.sock.do_handshake, "TLS handshake", deadline)
        if peer and x509.format_digest(self.sock.getpeercert(True) or b"") != peer:
            raise ChannelError("TLS handshake: the peer has another certificate")

    def receive(self, size: int, timeout_s: float | None = None) -> bytes:
        """Return some data, empty at the end.

        Raises:
            ChannelError: the connection broke, or there is no data in time.
        """
        try:
            data: bytes = self._repeat(
                lambda: self.sock.recv(size), "receiving data", _deadline(timeout_s)
            )
        except ssl.SSLZeroReturnError:
            return b""
        return data

    def send(self, data: bytes, timeout_s: float | None = None) -> None:
        """Send data completely.

        Raises:
            ChannelError: the connection broke, or takes nothing for that time.
        """
        rest = memoryview(data)
        while rest:
            sent = self._send_some(rest[:_RECORD], _deadline(timeout_s))
            rest = rest[sent:]

    def _send_some(self, part: memoryview, deadline: float | None) -> int:
        return int(self._repeat(lambda: self.sock.send(part), "sending", deadline))

    def finish(self, *, wait: bool) -> None:
        """Send close_notify; with ``wait`` until the peer has sent its own.

        Raises:
            ChannelError: the peer closed without it, so it may lack data.
        """

        def close() -> None:
            try:
                self.sock.unwrap()
            except ssl.SSLWantReadError:
                # Its own is sent.
                if wait:
                    raise

        with contextlib.suppress(ssl.SSLZeroReturnError):
            self._repeat(close, "the end of the transfer")

    def _repeat(
        self, call: Callable[[], Any], doing: str, deadline: float | None = None
    ) -> Any:
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, doing, deadline)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, doing, deadline)
            except ssl.SSLZeroReturnError:
                raise
            except OSError as err:
                raise ChannelError(f"{doing}: {err or 'connection lost'}") from err

    def _wait(self, event: int, doing: str, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self.sock, event)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not poll.poll(None if left is None else left * 1000):
            raise ChannelError(f"{doing}: timed out")


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s
