"""Requests to the servers of etcd.

A request goes to one server after another until one has answered. That is right for
all requests of this package, since a write is guarded by conditions that hold once.

Raised for a request that failed: `OutcomeUnknownError` if a server may have carried it
out, StorageError if none has.
"""

import io
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
import pycurl

from ganeti.base import errors
from ganeti.protocols.http import limits
from ganeti.store.backend import OutcomeUnknownError
from ganeti.store.etcd import messages
from ganeti.store.etcd.address import Servers, TlsFiles
from ganeti.store.etcd.messages import Json

#: Seconds for the answer of one server, and for its connection.
ANSWER_S: Final = 3.0
CONNECT_S: Final = 1.0
#: Bytes of one answer, and of one line of a watch.
_MAX_ANSWER: Final = 512 * 1024 * 1024
_OK: Final = 200
_MAYBE_DONE: Final = frozenset(
    {messages.UNKNOWN, messages.DEADLINE, messages.UNAVAILABLE}
)
_COMPACTED: Final = "has been compacted"
_Answer = TypeVar("_Answer")


class CompactedError(Exception):
    """A past state is no longer kept by the servers."""


class _Refused(Exception):
    """A server did not carry out the request; another one may."""


class _Lost(Exception):
    """A server may have carried out the request."""


class Gateway:
    """Sends requests to a store's servers; thread-safe."""

    def __init__(self, servers: Servers) -> None:
        """Remember the servers; nothing is sent yet."""
        self.servers = servers
        self._lock = threading.Lock()
        self._spare: list[Any] = []
        #: Position of the server that answered last.
        self._preferred = 0

    def call(
        self,
        path: str,
        body: Json,
        answer: type[_Answer],
        *,
        timeout_s: float = ANSWER_S,
    ) -> _Answer:
        """Send a request and return its answer.

        Args:
            path: below ``/v3/``.
            body: the request.
            answer: form of the answer.
            timeout_s: for each server.

        Raises:
            StorageError: not carried out.
            OutcomeUnknownError: perhaps carried out.
            CompactedError: the request reads a state that is not kept.
        """
        data = msgspec.json.encode(body)
        count, first, is_lost = len(self.servers.hosts), self._preferred, False
        reasons: list[str] = []
        for number in range(count):
            position = (first + number) % count
            host = self.servers.hosts[position]
            try:
                actual = self._ask(host, path, data, timeout_s)
            except _Lost as err:
                is_lost = True
                reasons.append(f"{host}: {err}")
            except _Refused as err:
                reasons.append(f"{host}: {err}")
            else:
                self._preferred = position
                return self._decode(actual, answer)
        # One server that may have carried it out is enough: the refusals of the others
        # do not show that it has not.
        text = f"{self.servers}: {'; '.join(reasons)}"
        raise OutcomeUnknownError(text) if is_lost else errors.StorageError(text)

    def fetch(self, path: str, body: Json, answer: type[_Answer]) -> _Answer:
        """Send a request that changes nothing.

        Raises:
            StorageError: no server answers.
            CompactedError: it reads a state that is not kept.
        """
        try:
            return self.call(path, body, answer)
        except OutcomeUnknownError as err:
            raise errors.StorageError(str(err)) from err

    def range(
        self, key: bytes, end: bytes, revision: int, limit: int
    ) -> Iterator[list[messages.KeyValue]]:
        """Yield the keys of a range in pages of so many.

        Args:
            key: the first.
            end: the first that is not in the range.
            revision: of etcd; 0 for the present one, each page at its own.
            limit: keys of one page.
        """
        while True:
            body = messages.get(key, end, revision=revision, limit=limit)
            actual = self.fetch("kv/range", body, messages.RangeAnswer)
            yield actual.kvs
            if not actual.more or not actual.kvs:
                return
            key = actual.kvs[-1].key + b"\0"

    def transact(self, body: Json) -> messages.TxnAnswer:
        """Carry out a transaction."""
        return self.call("kv/txn", body, messages.TxnAnswer)

    def watch(
        self,
        prefix: bytes,
        start: int,
        take: Callable[[list[messages.Event]], bool],
        *,
        timeout_s: float | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Pass on what is written below a prefix, until ``take`` returns false.

        Args:
            prefix: of the keys.
            start: first revision of etcd.
            take: gets the events of whole transactions in order.
            timeout_s: for the whole watch; None for no limit.
            is_wanted: asked once a second; the watch ends when it returns false.

        Raises:
            CompactedError: the start is no longer kept.
            StorageError: the connection ended.
        """
        body = {
            "create_request": {
                "key": prefix,
                "range_end": messages.after(prefix),
                "start_revision": start,
            }
        }
        host = self.servers.hosts[self._preferred]
        stream = _Stream(take, is_wanted)
        try:
            status = self._perform(
                host, "watch", msgspec.json.encode(body), stream, timeout_s
            )
        except (_Lost, _Refused) as err:
            stream.check()
            if stream.is_over:
                return
            self._preferred = (self._preferred + 1) % len(self.servers.hosts)
            raise errors.StorageError(f"{self.servers}: {host}: {err}") from err
        stream.check()
        if not stream.is_over:
            raise errors.StorageError(
                f"{self.servers}: {host}: the watch ended (status {status})"
            )

    def close(self) -> None:
        """Close idle connections."""
        with self._lock:
            spare, self._spare = self._spare, []
        for curl in spare:
            curl.close()

    def _ask(self, host: str, path: str, data: bytes, timeout_s: float) -> bytes:
        answer = io.BytesIO()

        status = self._perform(host, path, data, _Body(answer), timeout_s)
        if status == _OK:
            return answer.getvalue()
        try:
            failure = msgspec.json.decode(answer.getvalue(), type=messages.Failure)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _Lost(f"status {status} without an explanation") from None
        text = failure.message or failure.error
        if _COMPACTED in text:
            raise CompactedError(text)
        # An unavailable server may have passed the request on before it gave up.
        raise _Lost(text) if failure.code in _MAYBE_DONE else _Refused(text)

    def _perform(
        self,
        host: str,
        path: str,
        data: bytes,
        receiver: "_Body | _Stream",
        timeout_s: float | None,
    ) -> int:
        """Send a request to one server; return the status of the answer."""
        curl = self._handle()
        curl.setopt(pycurl.URL, f"{self.servers.url(host)}/v3/{path}")
        curl.setopt(pycurl.POSTFIELDS, data)
        curl.setopt(pycurl.TIMEOUT_MS, int(1000 * (timeout_s or 0)))
        curl.setopt(pycurl.WRITEFUNCTION, receiver.write)
        curl.setopt(pycurl.XFERINFOFUNCTION, receiver.progress)
        try:
            curl.perform()
            return int(curl.getinfo(pycurl.RESPONSE_CODE))
        except pycurl.error as err:
            text = f"{err.args[1]} (error {err.args[0]} of libcurl)"
            was_sent = curl.getinfo(pycurl.REQUEST_SIZE) > 0
            raise (_Lost(text) if was_sent else _Refused(text)) from err
        finally:
            # The handle waits for the next request, and would keep this one's answer.
            curl.setopt(pycurl.WRITEFUNCTION, len)
            curl.setopt(pycurl.XFERINFOFUNCTION, _go_on)
            with self._lock:
                self._spare.append(curl)

    def _handle(self) -> Any:
        with self._lock:
            if self._spare:
                return self._spare.pop()
        curl = pycurl.Curl()
        for option, value in _OPTIONS:
            curl.setopt(option, value)
        if self.servers.tls is not None:
            _set_tls(curl, self.servers.tls)
        return curl

    def _decode(self, data: bytes, answer: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(data, type=answer, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise OutcomeUnknownError(
                f"{self.servers}: this is not an answer of etcd: {err}"
            ) from err


def _go_on(*_sizes: int) -> int:
    return 0


class _Body:
    """The answer to one request."""

    def __init__(self, answer: io.BytesIO) -> None:
        self._answer = answer

    def write(self, piece: bytes) -> int:
        """Take a piece of the answer; a short count ends the transfer."""
        is_fine = self._answer.tell() + len(piece) <= _MAX_ANSWER
        return self._answer.write(piece) if is_fine else 0

    def progress(self, *_sizes: int) -> int:
        """Let the transfer go on."""
        return 0


class _Stream:
    """The answers of a watch, one JSON text per line."""

    def __init__(
        self,
        take: Callable[[list[messages.Event]], bool],
        is_wanted: Callable[[], bool],
    ) -> None:
        self.is_over = False
        self._take = take
        self._is_wanted = is_wanted
        self._rest = bytearray()
        self._error: BaseException | None = None

    def write(self, piece: bytes) -> int:
        """Take a piece of the answer; 0 ends the transfer."""
        self._rest += piece
        try:
            while not self.is_over and b"\n" in self._rest:
                line, _newline, self._rest = self._rest.partition(b"\n")
                self._read(bytes(line))
            self._check_size()
        except BaseException as err:  # noqa: BLE001 - the library would print it
            self._error = err
        return 0 if self.is_over or self._error is not None else len(piece)

    def progress(self, *_sizes: int) -> int:
        """End a transfer that is not wanted any more."""
        self.is_over = self.is_over or not self._is_wanted()
        return int(self.is_over)

    def check(self) -> None:
        """Raise what ended the watch early."""
        if self._error is not None:
            raise self._error

    def _check_size(self) -> None:
        if len(self._rest) > _MAX_ANSWER:
            raise errors.StorageError("etcd: an answer of a watch is too large")

    def _read(self, line: bytes) -> None:
        try:
            news = msgspec.json.decode(line, type=messages.Watched, strict=False).result
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise errors.StorageError(f"etcd: answer of a watch: {err}") from err
        if news is None:
            raise errors.StorageError(f"etcd: {line[:200].decode(errors='replace')}")
        if news.compact_revision:
            raise CompactedError(f"compacted up to {news.compact_revision}")
        if news.canceled:
            raise errors.StorageError(f"etcd: watch ended: {news.cancel_reason}")
        if news.events and not self._take(news.events):
            self.is_over = True


_OPTIONS: Final = (
    (pycurl.NOSIGNAL, 1),
    (pycurl.FOLLOWLOCATION, 0),
    (pycurl.PROXY, ""),
    (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
    (pycurl.TCP_NODELAY, 1),
    (pycurl.NOPROGRESS, 0),
    (pycurl.TCP_KEEPALIVE, 1),
    (pycurl.TCP_KEEPIDLE, 5),
    (pycurl.TCP_KEEPINTVL, 5),
    (pycurl.CONNECTTIMEOUT_MS, int(CONNECT_S * 1000)),
    (pycurl.HTTPHEADER, ["Content-Type: application/json", "Expect:"]),
)


def _set_tls(curl: Any, files: TlsFiles) -> None:
    curl.setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2)
    curl.setopt(pycurl.SSL_CIPHER_LIST, limits.CIPHERS)
    curl.setopt(pycurl.SSL_VERIFYPEER, 1)
    curl.setopt(pycurl.SSL_VERIFYHOST, 2)
    curl.setopt(pycurl.CAINFO, files.authority)
    if files.certificate:
        curl.setopt(pycurl.SSLCERT, files.certificate)
        curl.setopt(pycurl.SSLKEY, files.key or files.certificate)
