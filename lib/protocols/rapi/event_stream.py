"""The client's side of ``GET /2/events``: server-sent events over pycurl.

`Blocks` reads the format of the HTML standard as far as the server uses it; `follow`
yields the blocks of one answer as they arrive.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import pycurl

from ganeti.protocols.rapi import names, transport
from ganeti.protocols.rapi.names import Error

#: Seconds without a byte, not even a comment, after which the server counts as gone.
SILENCE_S: Final = 45
#: Most bytes of one event, and of an answer that is a refusal.
_MAX_BLOCK: Final = 4 << 20
_MAX_REFUSAL: Final = 64 << 10
#: Seconds of one wait of the library for data.
_STEP_S: Final = 1.0
_POSITION: Final = re.compile(r"[0-9]+(\.[0-9]+){2}")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened; see doc/luxi.rst.

    Attributes:
        position: from which `ganeti.rapi.modern.Cluster.events` goes on.
        revision: of the configuration.
        time: seconds since 1970.
        kind: such as ``object`` or ``job``.
        object: kind of the object.
        name: of the object, or number of the job.
        change: such as ``created``, or the new state.
        uuid: of the object, empty if it has none.
        details: further values, by kind.
    """

    position: str
    revision: int
    time: float
    kind: str
    object: str
    name: str
    change: str
    uuid: str = ""
    details: dict[str, Any] = {}


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """All events until here were yielded.

    Attributes:
        position: of the last one.
        lost: some of them were not, so read again what you show.
    """

    position: str
    lost: bool = False


class Block(NamedTuple):
    """One block of the stream; its parts are empty if it has none."""

    id: str
    name: str
    data: bytes


class Blocks:
    """Cuts a stream into blocks."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, part: bytes) -> Iterator[Block]:
        """Yield the blocks that are complete with a further part.

        Raises:
            Error: a block is too long.
        """
        self._received += part
        while (end := self._received.find(b"\n\n")) >= 0:
            block = bytes(self._received[:end])
            del self._received[: end + 2]
            yield _block(block)
        if len(self._received) > _MAX_BLOCK:
            raise Error(f"an event of the server has more than {_MAX_BLOCK} bytes")


def _block(text: bytes) -> Block:
    fields = {b"id": b"", b"event": b"", b"data": b""}
    for line in text.split(b"\n"):
        name, _colon, value = line.partition(b":")
        if name in fields:
            fields[name] = value.removeprefix(b" ")
    identity, event, data = fields.values()
    return Block(
        identity.decode(errors="replace"), event.decode(errors="replace"), data
    )


def value_of(block: Block) -> Event | Position | None:
    """Return the value of a block, None for a comment.

    Raises:
        Error: the data are no event.
    """
    if not block.data:
        return None
    kind: type[Event | Position] = Position if block.name == "position" else Event
    try:
        return msgspec.json.decode(block.data, type=kind)
    except (msgspec.DecodeError, UnicodeError) as err:
        raise Error(f"the server's answer is no {kind.__name__}: {err}") from err


def follow(curl: Any, url: str, since: str | None) -> Iterator[Block]:
    """Yield the blocks of one answer until its end.

    Args:
        curl: a new handle, see `ganeti.protocols.rapi.transport.new_handle`.
        url: of the resource with its arguments.
        since: id of the last block that the caller has.

    Raises:
        GanetiApiError: the server refused it, or the connection broke.
    """
    headers = ["Accept: text/event-stream", "Expect:"]
    if since is not None and _POSITION.fullmatch(since):
        headers.append(f"Last-Event-ID: {since}")
    curl.setopt(pycurl.HTTPHEADER, headers)
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.TIMEOUT_MS, 0)
    curl.setopt(pycurl.LOW_SPEED_LIMIT, 1)
    curl.setopt(pycurl.LOW_SPEED_TIME, SILENCE_S)
    blocks, refusal, status = Blocks(), bytearray(), 0
    try:
        for part in _transfer(curl):
            status = curl.getinfo(pycurl.RESPONSE_CODE)
            if status == names.HTTP_OK:
                yield from blocks.feed(part)
            elif len(refusal) < _MAX_REFUSAL:
                refusal += part
    finally:
        curl.close()
    if refusal:
        transport.result_of(status, bytes(refusal))


def _transfer(curl: Any) -> Iterator[bytes]:
    """Yield the body of an answer as it arrives.

    Raises:
        CertificateError: the certificate is not trusted.
        GanetiApiError: the request or the answer did not arrive.
    """
    parts: list[bytes] = []
    curl.setopt(pycurl.WRITEFUNCTION, parts.append)
    multi = pycurl.CurlMulti()
    multi.add_handle(curl)
    try:
        is_active = 1
        while is_active:
            _status, is_active = multi.perform()
            ready, parts[:] = parts[:], []
            yield from ready
            if is_active:
                multi.select(_STEP_S)
        for _handle, code, text in multi.info_read()[2]:
            raise transport.error_of(code, text)
    finally:
        multi.remove_handle(curl)
        multi.close()
