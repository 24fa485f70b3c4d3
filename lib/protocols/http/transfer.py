"""One request to an HTTP server and the pycurl handle that carries it.

The handling of many requests is in `ganeti.protocols.http.client`.
"""

import dataclasses
import errno
import io
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pycurl

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.base.tls import authority
from ganeti.protocols.http import limits
from ganeti.protocols.http.liveness import Host

#: Seconds for the handshake of a server that failed its last one; no request was sent.
_SILENT_CONNECT_S: Final = 2.0
#: A dead peer is detected after about a minute, independent of the call's time limit.
_KEEPALIVE_IDLE_S: Final = 30
_KEEPALIVE_INTERVAL_S: Final = 10
#: Milliseconds without acknowledgement of sent data until a connection is given up.
_UNACKNOWLEDGED_MS: Final = 10_000
#: First part of the library's error texts for time limits.
TIMED_OUT: Final = f"Error {pycurl.E_OPERATION_TIMEDOUT}: "
_NOT_TRUSTED: Final = f"Error {pycurl.E_SSL_CACERT}: "
_NO_CONNECTION: Final = f"Error {pycurl.E_COULDNT_CONNECT}: "
#: First parts of the texts if the server's certificate is not the trusted one, and if
#: our own certificate cannot be used.
_UNTRUSTED: Final = (
    f"Error {pycurl.E_PEER_FAILED_VERIFICATION}: ",
    f"Error {pycurl.E_SSL_CACERT}: ",
)
_UNUSABLE: Final = f"Error {pycurl.E_SSL_CERTPROBLEM}: "
#: The library wanted to send a request again that must not be.
_NOT_REPEATED: Final = f"Error {pycurl.E_SEND_FAIL_REWIND}: "
#: Error text for such a request.
CLOSED: Final = (
    "the server closed the connection while the request was sent; it may have acted, so"
    " the request was not sent again"
)
#: Error text if the kernel accepts connections but the server does not answer.
FROZEN: Final = (
    "it accepts connections but does not answer: the daemon or its machine is frozen"
    " or overloaded"
)


@dataclasses.dataclass(frozen=True)
class Credentials:
    """The client's side of TLS.

    Attributes:
        certificate: file of the client certificate with its key.
        authority: file of the trusted certificate.
        authority_pem: content of this file, if servers have certificates of their own
            that it has issued: then the certificate of the server must have the name
            that the request demands. None if all servers share the trusted certificate.
    """

    certificate: str
    authority: str
    authority_pem: bytes | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One POST request.

    Attributes:
        address: address of the server, without brackets.
        port: port of the server.
        path: path of the request, with its first slash.
        body: JSON text.
        headers: further headers, as ``Name: value``.
        credentials: None for plain HTTP.
        identity: DNS name that the certificate of the server must have, if servers have
            certificates of their own.
        timeout_s: time limit of the whole answer.
        connect_timeout_s: time limit of connection and handshake.
        silent_connect_s: the same for a server that failed its last handshake.
        probe_after_s: seconds of silence until the server is probed; None for requests
            that must not be given up.
        silence_s: seconds after the first failed probe until the request is given up.
        goes_first: it does not wait for the handshakes of other requests.
        server: name of the server program in error texts.
        max_answer: size limit of the answer, in bytes; a larger one is an error.
        is_repeatable: the server may receive the request twice. The library sends it
            again if a kept connection breaks before the answer begins.
        on_silence: called with true when the server has failed a probe and the request
            continues to wait, and with false when the server is alive again; from the
            client's thread, so it must not block.
    """

    address: str
    port: int
    path: str
    body: bytes
    headers: tuple[str, ...] = ()
    credentials: Credentials | None
    identity: str = ""
    timeout_s: float
    connect_timeout_s: float = misc.RPC_CONNECT_TIMEOUT
    silent_connect_s: float = _SILENT_CONNECT_S
    probe_after_s: float | None = None
    silence_s: float = 0.0
    goes_first: bool = False
    server: str = "the server"
    max_answer: int = limits.MAX_ANSWER
    is_repeatable: bool = False
    on_silence: Callable[[bool], None] | None = None

    @property
    def host(self) -> Host:
        """The server."""
        return self.address, self.port

    @property
    def demands_identity(self) -> bool:
        """Whether the server must prove that it has the name of `identity`."""
        given = self.credentials
        return given is not None and given.authority_pem is not None

    @property
    def where(self) -> str:
        """The server's address and port, for messages."""
        return f"{_bracketed(self.address)}:{self.port}"


class Response(NamedTuple):
    """An answer, or an error.

    ``error`` is None or a text; ``is_lost`` means that the server may have received the
    request despite the error. ``is_refused`` means that the server does not accept the
    certificate of the caller.
    """

    status: int
    body: bytes
    error: str | None = None
    is_lost: bool = False
    is_refused: bool = False


Done = Callable[[Response], None]


class Transfer:
    """One request in progress.

    Attributes:
        is_aborted: whether the caller wants its end.
        is_ended: whether the caller was answered.
        repetition: the transfer that sends the same request again, see
            `ganeti.protocols.http.client`.
        identified_by: which content the certificate's file had at the beginning.
        sent: bytes of the body that were passed on.
        moved: when it was started, or passed on bytes last.
    """

    def __init__(self, request: Request, done: Done) -> None:
        self.request = request
        self.is_ended = False
        self.repetition: Transfer | None = None
        self.identified_by = _file_version(request.credentials)
        self._done = done
        self.sent = 0
        self.moved = 0.0
        self.curl: Any = None
        self.is_aborted = False
        self._connect_s = request.connect_timeout_s
        self.answer = io.BytesIO()
        self.is_too_large = False
        self._body = io.BytesIO(request.body)

    def end(self, response: Response) -> None:
        """Answer the caller, once."""
        if not self.is_ended:
            self.is_ended = True
            self._done(response)

    def repeat(self) -> "Transfer":
        """Return a new transfer of the same request, which answers the caller."""
        self.is_ended = True
        self.repetition = Transfer(self.request, self._done)
        return self.repetition

    @property
    def has_new_certificate(self) -> bool:
        """Whether the caller's certificate was replaced since the beginning."""
        return self.identified_by != _file_version(self.request.credentials)

    def read(self, size: int) -> bytes:
        """Return the next bytes of the body."""
        data = self._body.read(size)
        self.sent += len(data)
        self.moved = time.monotonic()
        return data

    @property
    def is_hurried(self) -> bool:
        """Whether it ends so early that its end proves nothing: a probe decides."""
        return self._connect_s < self.request.connect_timeout_s

    def seek(self, offset: int, _origin: int) -> int:
        """Go back to the beginning, unless a request that acts has left it."""
        if offset or (self.sent and not self.request.is_repeatable):
            return int(pycurl.SEEKFUNC_FAIL)
        self._body.seek(0)
        return int(pycurl.SEEKFUNC_OK)

    def write(self, data: bytes) -> int:
        """Receive a piece of the answer; a short count aborts the transfer."""
        if self.answer.tell() + len(data) > self.request.max_answer:
            self.is_too_large = True
            return 0
        return self.answer.write(data)

    def configure(
        self,
        curl: Any,
        *,
        fresh: bool,
        connect_s: float,
        on_socket: Callable[[int], None],
    ) -> None:
        """Set the options of a handle from `handle` that differ between requests.

        Args:
            curl: the handle, for this request's credentials.
            fresh: use a new connection.
            connect_s: time limit of connection and handshake.
            on_socket: called with the descriptor of each new connection.
        """

        def prepare(fd: int, purpose: int) -> int:
            on_socket(fd)
            return _limit_silence(fd, purpose)

        request = self.request
        self._connect_s = connect_s
        _set_server(curl, request, connect_s)
        for option, value in (
            (pycurl.POST, 1),
            (pycurl.POSTFIELDSIZE_LARGE, len(request.body)),
            (pycurl.READFUNCTION, self.read),
            (pycurl.SEEKFUNCTION, self.seek),
            (pycurl.WRITEFUNCTION, self.write),
            (
                pycurl.HTTPHEADER,
                ["Content-Type: application/json", "Expect:", *request.headers],
            ),
            (pycurl.TIMEOUT_MS, int(request.timeout_s * 1000)),
            (pycurl.FRESH_CONNECT, int(fresh)),
            (pycurl.SOCKOPTFUNCTION, prepare),
        ):
            curl.setopt(option, value)

    def result(self, curl: Any, error: str | None) -> Response:
        """Return the outcome."""
        if error is None:
            return Response(curl.getinfo(pycurl.RESPONSE_CODE), self.answer.getvalue())
        # In TLS 1.3, the refusal of our certificate arrives after sending has begun.
        refused = "alert" in error and curl.getinfo(pycurl.NUM_CONNECTS) > 0
        text = self._describe_error(curl, error)
        return Response(
            0, b"", text, is_lost=self.sent > 0 and not refused, is_refused=refused
        )

    def given_up(self) -> Response:
        """Return the outcome after a failed probe of the server."""
        text = f"{TIMED_OUT}{self.request.where}: {FROZEN}"
        return Response(0, b"", text, is_lost=self.sent > 0)

    def aborted(self) -> Response:
        """Return the outcome of a transfer that was ended on request."""
        text = f"{self.request.where}: the call was ended on request"
        return Response(0, b"", text, is_lost=self.sent > 0)

    def _describe_error(self, curl: Any, error: str) -> str:
        """Return the library's text with the server's address and advice."""
        number, _, reason = error.partition(": ")
        where, server = self.request.where, self.request.server
        if self.is_too_large:
            limit = self.request.max_answer
            return f"{number}: {where}: the answer is larger than {limit} bytes"
        if is_unanswered(curl, error):
            return f"{number}: {where}: {reason}: {FROZEN}"
        if error.startswith(_NOT_REPEATED):
            return f"{number}: {where}: {CLOSED}"
        if error.startswith(_NOT_TRUSTED) and self.request.demands_identity:
            wanted = self._describe_stranger(reason)
            return f"{number}: {where}: {wanted}"
        if error.startswith(TIMED_OUT) and not curl.getinfo(pycurl.PRIMARY_IP):
            cause, is_refused = f"no connection within {self._connect_s:g} s", False
        elif error.startswith(_NO_CONNECTION) and curl.getinfo(pycurl.OS_ERRNO):
            code = curl.getinfo(pycurl.OS_ERRNO)
            cause, is_refused = os.strerror(code).lower(), code == errno.ECONNREFUSED
        else:
            return f"{number}: {where}: {reason}{self._advice(error)}"
        look = f"is {server} running there?"
        if not is_refused:
            look = "is the machine up and its network connected?"
        return f"{number}: {where} does not answer: {cause}; {look}"

    def _advice(self, error: str) -> str:
        """Return which certificate a TLS error is about, and the commands that help."""
        credentials = self.request.credentials
        if credentials is None:
            return ""
        if "alert" in error and "expired" in error:
            return (
                f"; the server there refuses {credentials.certificate} of this node,"
                " which has expired: run gnt-cluster renew-crypto"
                " --new-cluster-certificate on the master, which needs no calls then"
            )
        if "alert" in error:
            which = f"the server there refuses {credentials.certificate} of this node"
        elif error.startswith(_UNTRUSTED):
            which = f"the server there has not the certificate {credentials.authority}"
        elif error.startswith(_UNUSABLE):
            which = f"{credentials.certificate} of this node cannot be used"
        else:
            return ""
        renew = (
            "cluster-certificate"
            if error.startswith(_UNTRUSTED)
            else "node-certificates"
        )
        return (
            f"; {which}: run gnt-cluster verify on the master, then gnt-cluster"
            f" renew-crypto --new-{renew}"
        )

    def _describe_stranger(self, reason: str) -> str:
        """Return why the certificate of a server is refused, and the command to run."""
        identity = self.request.identity
        subject = f"the certificate of node {identity} cannot be accepted ({reason})"
        if "expired" in reason:
            if ended := self._own_ended():
                return f"{subject}: {ended}"
            return f"{subject}: run gnt-node add --readd for it, which needs no call"
        if "not yet valid" in reason:
            return f"{subject}: compare the clocks of the node and of this machine"
        return (
            "the machine at this address does not have the certificate of node"
            f" {identity} ({reason}): it is another machine, or the certificate was not"
            " renewed with the cluster's; in the second case run gnt-node add --readd"
            " for it"
        )

    def _own_ended(self) -> str:
        """Return which certificate of this node has ended, too; empty if none.

        Then those of other nodes have probably ended with it, and adding each node
        again helps nobody.
        """
        credentials = self.request.credentials
        if credentials is None:
            return ""
        try:
            authority.check_ends(credentials.authority, credentials.certificate)
        except errors.X509CertError as err:
            return ": ".join(map(str, err.args))
        return ""


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def handle(credentials: Credentials | None) -> Any:
    """Return a new handle with the options that all requests of a caller share.

    Setting them costs more than the rest of a small request, so a handle is kept for
    further requests with the same credentials.
    """
    curl = pycurl.Curl()
    for option, value in _FIXED_OPTIONS:
        curl.setopt(option, value)
    if credentials is not None:
        _set_credentials(curl, credentials)
    return curl


def _file_version(credentials: Credentials | None) -> tuple[int, int] | None:
    """Return inode and time of the caller's certificate; None if it has none."""
    if credentials is None:
        return None
    try:
        status = os.stat(credentials.certificate)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _set_server(curl: Any, request: Request, connect_s: float) -> None:
    scheme = "http" if request.credentials is None else "https"
    where = request.where
    if request.demands_identity:
        # The library compares the host of the URL with the certificate of the server,
        # and keeps connections by it; the address is given apart.
        where = f"{request.identity}:{request.port}"
        curl.setopt(pycurl.CONNECT_TO, [f"{where}:{request.where}"])
    curl.setopt(pycurl.URL, f"{scheme}://{where}{request.path}")
    curl.setopt(pycurl.CONNECTTIMEOUT_MS, int(connect_s * 1000))


def probe(request: Request) -> Any:
    """Return a handle of a probe: only a new connection to a request's server."""
    curl = handle(request.credentials)
    _set_server(curl, request, request.connect_timeout_s)
    for option in (pycurl.CONNECT_ONLY, pycurl.FRESH_CONNECT, pycurl.FORBID_REUSE):
        curl.setopt(option, 1)
    return curl


def is_unanswered(curl: Any, error: str) -> bool:
    """Return whether the kernel accepted a connection that was never answered."""
    return bool(
        error.startswith(TIMED_OUT)
        and curl.getinfo(pycurl.CONNECT_TIME) > 0
        and curl.getinfo(pycurl.APPCONNECT_TIME) == 0
        and curl.getinfo(pycurl.EFFECTIVE_URL).startswith("https:")
    )


def is_unreachable(curl: Any, error: str) -> bool:
    """Return whether nobody in the network of a server has its address.

    The kernel reports that after some seconds, for example of a node without power.
    """
    return bool(
        error.startswith(_NO_CONNECTION)
        and curl.getinfo(pycurl.OS_ERRNO) == errno.EHOSTUNREACH
    )


def _limit_silence(fd: int, _purpose: int) -> int:
    """Let the kernel give up a connection if its peer acknowledges nothing.

    Without this, a kept connection to a node without power or network looks like a slow
    node until the time limit of the call.
    """
    with socket.socket(fileno=os.dup(fd)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    return int(pycurl.SOCKOPT_OK)


_FIXED_OPTIONS: Final = (
    (pycurl.NOSIGNAL, 1),
    (pycurl.FOLLOWLOCATION, 0),
    (pycurl.PROXY, ""),
    (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
    (pycurl.TCP_NODELAY, 1),
    (pycurl.SSL_SESSIONID_CACHE, 0),
    (pycurl.TCP_KEEPALIVE, 1),
    (pycurl.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
    (pycurl.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S),
    (pycurl.MAXAGE_CONN, limits.REUSE_S),
    (pycurl.SOCKOPTFUNCTION, _limit_silence),
)


def _set_credentials(curl: Any, credentials: Credentials) -> None:
    curl.setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2)
    curl.setopt(pycurl.SSL_CIPHER_LIST, limits.CIPHERS)
    curl.setopt(pycurl.SSLCERT, credentials.certificate)
    curl.setopt(pycurl.SSLKEY, credentials.certificate)
    curl.setopt(pycurl.SSL_VERIFYPEER, 1)
    if credentials.authority_pem is None:
        curl.setopt(pycurl.CAINFO, credentials.authority)
        # All nodes of the cluster have the same certificate: its name proves nothing.
        curl.setopt(pycurl.SSL_VERIFYHOST, 0)
    else:
        # The library remembers a file by its name, and would miss a new content.
        curl.setopt(pycurl.CAINFO_BLOB, credentials.authority_pem)
        curl.setopt(pycurl.SSL_VERIFYHOST, 2)
