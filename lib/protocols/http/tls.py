"""TLS for servers: access rules, and sockets for cheroot.

`PeerGuard` is the access rule of the node daemon: a caller is identified by the digest
of its certificate. `Adapter` provides cheroot with sockets whose handshake runs step by
step, so a connection uses no worker before its peer is known.
"""

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from cheroot.ssl.pyopenssl import pyOpenSSLAdapter
from cryptography import x509
from OpenSSL import SSL, crypto

from ganeti.base import errors
from ganeti.base.constants.protocols import ssh
from ganeti.base.filesystem import files
from ganeti.base.tls import x509 as certificates
from ganeti.protocols.http import admission, limits, sockets

_log = logging.getLogger(__name__)

#: WSGI key of the digest of the peer's certificate; missing without TLS.
PEER_KEY: Final = "ganeti.peer_digest"
#: Bytes that a refused peer may send before the connection is reset.
_DISCARD_SIZE: Final = 65536


class PeerGuard:
    """The access rule: certificate digests that may call this node.

    The list of the master candidates decides. If it is missing or empty, as on a node
    during its setup, only the cluster certificate itself is allowed. The last readable
    list is kept, because a node with a broken disk must still obey the master. If the
    list is damaged and no earlier one is known, nobody is allowed: every node has the
    cluster certificate.
    """

    def __init__(
        self,
        server_digest: str,
        list_path: str,
        read: Callable[[], Mapping[str, str]],
    ) -> None:
        """Prepare the rule.

        Args:
            server_digest: digest of the cluster certificate, see also `trust`.
            list_path: file of the list, watched for changes.
            read: returns node uuid -> digest, empty without a list.
        """
        self._trusted = frozenset({server_digest})
        self._list_path = list_path
        self._read = read
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._digests: dict[str, str] = {}
        self._is_damaged = False

    def trust(self, digests: Iterable[str]) -> None:
        """Replace the digests of the cluster certificate and of its authorities."""
        self._trusted = frozenset(digests)

    def allows(self, digest: str) -> bool:
        """Return whether the holder of a certificate may call."""
        listed = self._listed()
        if not listed and not self._is_damaged:
            return digest in self._trusted
        return digest in listed

    def holder(self, digest: str) -> str:
        """Return the uuid of the node that has a certificate, empty if not listed.

        While the master's certificate is renewed, it has two entries.
        """
        return self._listed().get(digest, "").removesuffix(ssh.CRYPTO_NEXT)

    def allows_issuer(self, digest: str) -> bool:
        """Return whether a certificate may be the issuer of a caller's."""
        return digest in self._trusted

    def _listed(self) -> dict[str, str]:
        """Return node uuid by digest."""
        with self._lock:
            try:
                seen = files.version(self._list_path)
                if seen != self._seen:
                    self._digests = {d: uuid for uuid, d in self._read().items()}
                    self._seen, self._is_damaged = seen, False
            except FileNotFoundError:
                self._digests, self._seen, self._is_damaged = {}, None, False
            except (OSError, ValueError, errors.GenericError) as err:
                self._is_damaged = True
                _log.warning(
                    "cannot read the list of allowed callers, %s: %s",
                    "keeping the last one" if self._digests else "allowing nobody",
                    err,
                )
            return self._digests


def server_context(
    certificate: str,
    key: str,
    *,
    guard: PeerGuard | None = None,
    authority: str | None = None,
    chain: Sequence[x509.Certificate] = (),
) -> SSL.Context:
    """Return the TLS context of a server.

    Args:
        certificate: PEM file.
        key: PEM file.
        guard: the access rule for client certificates; None for servers that
            authenticate callers in another way.
        authority: PEM file of the issuer of client certificates; by default the
            server's certificate.
        chain: certificates that are sent after the server's.

    Raises:
        X509CertError: the files cannot be used.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(limits.CIPHERS.encode())
    # A resumed session would skip the check of the peer's certificate.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    context.set_session_id(b"ganeti")
    # Idle connections need no buffers, 34 KiB each.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    try:
        context.use_certificate_file(certificate)
        context.use_privatekey_file(key)
        context.check_privatekey()
        if guard is not None:
            context.load_verify_locations(authority or certificate)
    except SSL.Error as err:
        raise errors.X509CertError(
            f"{certificate}, {key}: no usable certificate and key: {err}"
        ) from err
    for further in chain:
        context.add_extra_chain_cert(crypto.X509.from_cryptography(further))
    if guard is not None:
        context.set_verify(
            SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _verifier(guard)
        )
    return context


def _verifier(guard: PeerGuard) -> Callable[..., bool]:
    refused = admission.LogLimit()

    def verify(
        _connection: SSL.Connection, cert: Any, error: int, depth: int, ok: int
    ) -> bool:
        digest = certificates.digest(cert.to_cryptography())
        known = guard.allows(digest) if depth == 0 else guard.allows_issuer(digest)
        if ok and known:
            return True
        count = refused.note(time.monotonic())
        if not count:
            return False
        _log.warning(
            "refused %d certificates, the last one %s at depth %d: %s",
            count,
            digest,
            depth,
            "not the certificate of a master candidate" if ok else _reason(error),
        )
        return False

    return verify


def _reason(error: int) -> str:
    """Return why OpenSSL refuses a certificate, and who can change it."""
    text = _REASONS.get(error, f"error {error} of OpenSSL")
    return f"{text}; run gnt-cluster verify on the master"


#: Numbers of X509_V_ERR_*, see verify(1) of OpenSSL.
_REASONS: Final = {
    **dict.fromkeys(
        (7, 18, 19, 20, 21), "not issued by an authority that this node trusts"
    ),
    9: "it is not yet valid: compare the clocks of both machines",
    10: "it has expired",
}


class TlsSocket(sockets.ServerSocket):
    """The server's side of a TLS connection."""

    def __init__(self, context: SSL.Context, sock: socket.socket) -> None:
        super().__init__(sock)
        self._connection = SSL.Connection(context, sock)
        self._connection.set_accept_state()
        self.is_refused = False
        self._discarded = 0

    def handshake(self) -> bool:
        """Continue the handshake; return whether it is complete. Never waits.

        Raises:
            ConnectionAbortedError: the peer was refused or does not use TLS.
            ConnectionResetError: the peer closed the connection.
        """
        try:
            self._connection.do_handshake()
        except (SSL.WantReadError, SSL.WantWriteError):
            return False
        except (SSL.SysCallError, SSL.ZeroReturnError) as err:
            raise ConnectionResetError(
                errno.ECONNRESET, "the peer closed the connection during the handshake"
            ) from err
        except SSL.Error as err:
            raise ConnectionAbortedError(
                errno.ECONNABORTED, f"no TLS connection: {err}"
            ) from err
        self.is_established = True
        return True

    def refuse(self) -> None:
        """Stop writing; `discard` reads further data from the peer.

        Closing at once would reset the connection, and the peer might not receive the
        TLS alert with the reason.
        """
        self.is_refused = True
        self._sock.shutdown(socket.SHUT_WR)

    def discard(self) -> bool:
        """Discard data received after a refusal; return whether there may be more."""
        try:
            count = len(self._sock.recv(_DISCARD_SIZE))
        except BlockingIOError:
            return True
        self._discarded += count
        return count > 0 and self._discarded < _DISCARD_SIZE

    def peer_digest(self) -> str | None:
        """Return the digest of the peer's certificate."""
        cert = self._connection.get_peer_certificate(as_cryptography=True)
        return certificates.digest(cert) if isinstance(cert, x509.Certificate) else None

    def peek(self, size: int) -> bytes | None:
        """See `ServerSocket.peek`."""
        try:
            return bytes(self._connection.recv(size, socket.MSG_PEEK))
        except (SSL.WantReadError, SSL.WantWriteError):
            return None
        except SSL.Error:
            return b""

    def receive_now(self, size: int) -> bytes | None:
        """See `ServerSocket.receive_now`."""
        try:
            return bytes(self._connection.recv(size))
        except (SSL.WantReadError, SSL.WantWriteError):
            return None
        except SSL.ZeroReturnError:
            return b""
        except SSL.Error as err:
            raise ConnectionResetError(errno.ECONNRESET, str(err)) from err

    def send_now(self, data: bytes | memoryview) -> int:
        """See `ServerSocket.send_now`."""
        try:
            return int(self._connection.send(data))
        except (SSL.WantReadError, SSL.WantWriteError):
            return 0
        except SSL.Error as err:
            raise ConnectionResetError(errno.ECONNRESET, str(err)) from err

    @property
    def has_pending(self) -> bool:
        """Return whether data is decrypted that was not read."""
        return self.is_established and self._connection.pending() > 0

    def _receive(self, buffer: Any) -> int:
        try:
            return int(self._wait_and_call(self._connection.recv_into, buffer))
        except SSL.ZeroReturnError:
            return 0

    def _write(self, data: memoryview) -> int:
        return self._wait_and_call(self._connection.send, data)

    def _wait_and_call(self, call: Callable[[Any], int], argument: Any) -> int:
        while True:
            try:
                return call(argument)
            except SSL.WantReadError:
                self._wait_for_data()
            except SSL.WantWriteError:
                self._wait_for_reader()
            except SSL.ZeroReturnError:
                raise
            except SSL.Error as err:
                raise ConnectionResetError(errno.ECONNRESET, str(err)) from err

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """Shut down the TLS session and the socket."""
        try:
            self._connection.shutdown()
        except SSL.Error:
            _log.debug("the peer did not shut down the TLS session")
        self._sock.shutdown(how)


class Adapter(pyOpenSSLAdapter):
    """The pyOpenSSL adapter of cheroot with our context and sockets."""

    def __init__(self, context: Callable[[], SSL.Context]) -> None:
        """Prepare the adapter; ``context`` returns the context of a new connection."""
        super().__init__(None, None)
        self._context = context

    def bind(self, sock: socket.socket) -> socket.socket:
        """Return the listening socket unchanged; connections are wrapped one by one."""
        return sock

    def wrap(self, sock: socket.socket) -> tuple[TlsSocket, dict[str, Any]]:
        """Wrap an accepted connection; its handshake follows later."""
        return TlsSocket(self._context(), sock), self.get_environ()

    def get_environ(self) -> dict[str, Any]:
        """Return the TLS entries of each request's environment."""
        return {"wsgi.url_scheme": "https", "HTTPS": "on"}

    def makefile(self, sock: TlsSocket, mode: str = "r", bufsize: int = -1) -> Any:
        """Return a file object of a connection."""
        return sockets.make_file(sock, mode, bufsize)


class ReloadedContext:
    """A context that is made again when one of its files changes.

    Connections that exist keep theirs. If the new files cannot be used, the last
    context stays: a node with a broken disk must still obey the master.
    """

    def __init__(self, make: Callable[[], SSL.Context], paths: Sequence[str]) -> None:
        """Make the first context.

        Args:
            make: returns a context of the present files.
            paths: the files, which are replaced atomically.

        Raises:
            X509CertError: the files cannot be used.
        """
        self._make = make
        self._paths = paths
        self._lock = threading.Lock()
        self._seen = self._look()
        self._context = make()

    def __call__(self) -> SSL.Context:
        """Return the context for a new connection."""
        with self._lock:
            seen = self._look()
            if seen is not None and seen != self._seen:
                self._seen = seen
                try:
                    self._context = self._make()
                    _log.info("loaded the certificate %s", self._paths[0])
                except (errors.X509CertError, OSError) as err:
                    _log.error("keeping the last certificate: %s", err)
            return self._context

    def _look(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the identity of the files, None if they cannot be examined."""
        try:
            return tuple(
                (*files.version(path), os.stat(path).st_mode) for path in self._paths
            )
        except OSError:
            return None
