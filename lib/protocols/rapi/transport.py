"""Requests over HTTPS by pycurl, and the documented helpers that configure it."""

import contextlib
import contextvars
import functools
import io
import json
import logging
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

import pycurl

from ganeti.protocols.rapi import names
from ganeti.protocols.rapi.names import CertificateError, Error, GanetiApiError

P = ParamSpec("P")
T = TypeVar("T")

#: Configures a new pycurl handle: handle, logger.
ConfigFunction = Callable[[Any, Any], None]

#: Numbers of the library's errors that concern certificates.
_CERTIFICATE_ERRORS: Final = frozenset(
    {
        pycurl.E_SSL_CACERT,
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CACERT_BADFILE,
    }
)
#: Position of the name of the TLS library in the version information of pycurl.
_TLS_LIBRARY: Final = 5
#: Largest answer, in bytes: a bulk list of 20,000 instances has about 60 MiB.
MAX_ANSWER: Final = 512 << 20


def EpochNano() -> int:
    """Return the present time in nanoseconds since 1970."""
    return time.time_ns()


def UsesRapiClient(fn: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that uses the client: set up pycurl around its call."""

    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        pycurl.global_init(pycurl.GLOBAL_ALL)
        try:
            return fn(*args, **kwargs)
        finally:
            pycurl.global_cleanup()

    return wrapper


def GenericCurlConfig(
    verbose: bool = False,
    use_signal: bool = False,
    use_curl_cabundle: bool = False,
    cafile: str | None = None,
    capath: str | None = None,
    proxy: str | None = None,
    verify_hostname: bool = False,
    connect_timeout: float | None = None,
    timeout: float | None = None,
    _pycurl_version_fn: Callable[[], Sequence[Any]] = pycurl.version_info,
) -> ConfigFunction:
    """Return a function that configures pycurl handles.

    Args:
        verbose: print details of transfers to the error output.
        use_signal: let the library use signals; not in programs with threads.
        use_curl_cabundle: trust the certificates that the library trusts by default.
        cafile: file of trusted certificates.
        capath: directory of trusted certificates.
        proxy: its URL; empty for none, None for that of the environment.
        verify_hostname: verify that the certificate names the host.
        connect_timeout: of the connection, in seconds.
        timeout: of a whole request, in seconds.

    Raises:
        Error: two sources of trusted certificates, or the library cannot use one.
    """
    if use_curl_cabundle and (cafile or capath):
        raise Error("give either the default certificates, or cafile and capath")
    if capath:
        _check_capath(str(_pycurl_version_fn()[_TLS_LIBRARY]))
    verifies = bool(use_curl_cabundle or cafile or capath)

    def configure(curl: Any, logger: Any) -> None:
        logger.debug("Using cURL version %s", pycurl.version)
        curl.setopt(pycurl.VERBOSE, int(verbose))
        curl.setopt(pycurl.NOSIGNAL, int(not use_signal))
        # 2: the name of the host must be that of the certificate.
        curl.setopt(pycurl.SSL_VERIFYHOST, 2 if verify_hostname else 0)
        curl.setopt(pycurl.SSL_VERIFYPEER, int(verifies))
        if cafile:
            curl.setopt(pycurl.CAINFO, str(cafile))
        if capath:
            curl.setopt(pycurl.CAPATH, str(capath))
        if proxy is not None:
            curl.setopt(pycurl.PROXY, str(proxy))
        if connect_timeout is not None:
            curl.setopt(pycurl.CONNECTTIMEOUT_MS, int(connect_timeout * 1000))
        if timeout is not None:
            curl.setopt(pycurl.TIMEOUT_MS, int(timeout * 1000))

    return configure


def _check_capath(library: str) -> None:
    if not library.lower().startswith("openssl"):
        raise Error(f"capath: wanted a cURL with OpenSSL, found {library!r}")


def new_handle(
    config: ConfigFunction | None,
    factory: Callable[[], Any] | None,
    logger: Any,
    credentials: tuple[str, str] | None,
) -> Any:
    """Return a pycurl handle that is ready but for a request.

    Args:
        config: sets trust, timeouts and proxy; None for the settings of the library
            without verification of the host's name.
        factory: returns a new handle.
        logger: for ``config``.
        credentials: name and password.
    """
    curl = pycurl.Curl() if factory is None else factory()
    curl.setopt(pycurl.VERBOSE, 0)
    curl.setopt(pycurl.FOLLOWLOCATION, 0)
    curl.setopt(pycurl.NOSIGNAL, 1)
    curl.setopt(pycurl.USERAGENT, "Ganeti RAPI Client")
    # Certificates of clusters name no host. A configuration may verify more.
    curl.setopt(pycurl.SSL_VERIFYHOST, 0)
    curl.setopt(pycurl.SSL_VERIFYPEER, 0)
    headers = [f"Accept: {names.HTTP_APP_JSON}"]
    headers.append(f"Content-type: {names.HTTP_APP_JSON}")
    # Without this the library waits for permission before it sends a long body.
    headers.append("Expect:")
    curl.setopt(pycurl.HTTPHEADER, headers)
    if credentials is not None:
        curl.setopt(pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC)
        curl.setopt(pycurl.USERPWD, ":".join(credentials).encode())
    if config is not None:
        config(curl, logger)
    return curl


def perform(curl: Any, method: str, url: str, content: bytes) -> tuple[int, bytes]:
    """Send a request and return status and body of the answer.

    Raises:
        CertificateError: the certificate is not trusted.
        GanetiApiError: the request or the answer did not arrive.
    """
    answer = io.BytesIO()

    def write(part: bytes) -> int:
        # Another number than that of the given bytes ends the transfer.
        room = answer.tell() + len(part) <= MAX_ANSWER
        return answer.write(part) if room else -1

    curl.setopt(pycurl.CUSTOMREQUEST, method)
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.POSTFIELDS, content)
    curl.setopt(pycurl.WRITEFUNCTION, write)
    try:
        curl.perform()
    except pycurl.error as err:
        raise error_of(int(err.args[0]), str(err.args[1])) from err
    finally:
        # The handle keeps references to both otherwise.
        curl.setopt(pycurl.POSTFIELDS, b"")
        curl.setopt(pycurl.WRITEFUNCTION, lambda _part: None)
    return curl.getinfo(pycurl.RESPONSE_CODE), answer.getvalue()


def error_of(code: int, text: str) -> GanetiApiError:
    """Return the error for a number and text of the library."""
    if code in _CERTIFICATE_ERRORS:
        return CertificateError(f"SSL certificate error: {text}", code=code)
    return GanetiApiError(text, code=code)


def result_of(status: int, answer: bytes) -> Any:
    """Return the result of an answer.

    Raises:
        GanetiApiError: another status than 200, or no JSON.
    """
    try:
        value = json.loads(answer) if answer else None
    except ValueError as err:
        if status == names.HTTP_OK:
            raise GanetiApiError(
                f"the answer is no JSON: {answer[:50]!r}", code=status
            ) from err
        value = None
    if status == names.HTTP_OK:
        return value
    if isinstance(value, dict) and {"code", "message", "explain"} <= set(value):
        message = f"{value['code']} {value['message']}: {value['explain']}"
    else:
        message = answer.decode(errors="replace")[:1000] or f"status {status}"
    raise GanetiApiError(message, code=status)


def base_url(host: str, port: int) -> str:
    """Return the beginning of all URLs of a server."""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


#: Query arguments: names and values, in their order.
Arguments = Sequence[tuple[str, Any]]
#: Those that all requests of this thread have beside their own.
_FURTHER: Final = contextvars.ContextVar[Arguments]("further arguments", default=())


def part(value: Any) -> str:
    """Return a part of a path."""
    return urllib.parse.quote(str(value), safe="")


def given(**values: Any) -> dict[str, Any]:
    """Return the members of a body that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def changes(dry_run: Any, reason: str | None) -> list[Any]:
    """Return the query arguments of most changes."""
    query: list[Any] = [("dry-run", 1)] if dry_run else []
    return [*query, ("reason", reason)] if reason else query


class Base:
    """Connection and encoding; the methods are in the subclasses.

    Handles of pycurl may not be shared by threads, so each thread has its own.
    """

    USER_AGENT = "Ganeti RAPI Client"

    def __init__(
        self,
        host: str,
        port: int = names.GANETI_RAPI_PORT,
        username: str | None = None,
        password: str | None = None,
        logger: Any = logging,
        curl_config_fn: ConfigFunction | None = None,
        curl_factory: Callable[[], Any] | None = None,
    ) -> None:
        """Prepare a client; nothing is sent.

        Args:
            host: name or address of the master, of either address family.
            port: of the server.
            username: of the users file.
            password: of that user.
            logger: a logger, or the module ``logging``.
            curl_config_fn: configures handles, see `GenericCurlConfig`; certificates
                are not verified without it.
            curl_factory: returns a new handle.

        Raises:
            Error: only one of name and password is given.
        """
        self._host, self._port = host, port
        self._logger = logger
        self._base_url = base_url(host, port)
        if username is not None and password is None:
            raise Error("Password not specified")
        if password is not None and username is None:
            raise Error("Specified password without username")
        self._credentials = None
        if username is not None and password is not None:
            self._credentials = (username, password)
        self._config, self._factory = curl_config_fn, curl_factory
        self._local = threading.local()

    def _handle(self) -> Any:
        """Return the handle of this thread, whose connection is reused."""
        pid = os.getpid()
        owner, curl = getattr(self._local, "handle", (None, None))
        if owner != pid:
            # After a fork, the connection is the parent's: keep it, do not use it.
            self._local.inherited = curl
            curl = new_handle(
                self._config, self._factory, self._logger, self._credentials
            )
            self._local.handle = pid, curl
        return curl

    def _SendRequest(
        self, method: str, path: str, query: Arguments | None, content: Any
    ) -> Any:
        """Send a request and return the decoded result.

        Args:
            method: of HTTP.
            path: without the host.
            query: arguments; truth values are sent as 0 and 1, None as empty text.
            content: body, anything that JSON can represent; None for no body.

        Raises:
            GanetiApiError: the server refused it, or it could not be sent.
        """
        body = b"" if content is None else json.dumps(content, sort_keys=True).encode()
        url = self._base_url + path
        query = [*(query or ()), *_FURTHER.get()]
        if query:
            url = f"{url}?{urllib.parse.urlencode(_encoded(query))}"
        self._logger.debug("Sending request: %s %s", method, path)
        status, answer = perform(self._handle(), method, url, body)
        return result_of(status, answer)

    def _post(self, path: str, query: Arguments, content: Any = None) -> Any:
        return self._SendRequest(names.HTTP_POST, f"/2{path}", query, content)

    def GetFeatures(self) -> list[str]:
        """Return the features of the server; a server without the list has none."""
        try:
            answer: list[str] = self._SendRequest("GET", "/2/features", None, None)
        except GanetiApiError as err:
            if err.code == names.HTTP_NOT_FOUND:
                return []
            raise
        return answer


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """Have this thread's requests planned; see `ganeti.protocols.rapi.modern`."""
    token = _FURTHER.set([("plan", 1)])
    try:
        yield
    finally:
        _FURTHER.reset(token)


def _encoded(query: Arguments) -> list[tuple[str, str]]:
    """Return query arguments as texts."""
    encoded = []
    for name, value in query:
        if isinstance(value, (list, tuple, Mapping)):
            raise Error(f"{name}: wanted a number or a text, found {value!r}")
        if value is None:
            text = ""
        elif isinstance(value, bool):
            text = str(int(value))
        else:
            text = str(value)
        encoded.append((name, text))
    return encoded
