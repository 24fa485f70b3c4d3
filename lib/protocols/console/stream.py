"""The stream of a console: a request, an answer, then frames in both directions.

A viewer sends ``GET /console`` to the node daemon, over the same mutual TLS as node
calls, with ``Upgrade: ganeti-console`` and the header ``X-Ganeti-Console``, whose value
is an `Opening` as JSON. The node answers with status 101 and frames follow, or with an
error in the form of those of node calls.

A frame has a head of three bytes, kind and length, and at most `MAX_DATA` bytes:

========== ==== ===================================================================
``DATA``   0    bytes of the console, in both directions
``NOTICE`` 1    a `Message` about the connection; the first frame of the node is one
``END``    2    a `Message`: why nothing follows; the last frame of the node
``EOF``    3    no more data follows in this direction, but still in the other one
========== ==== ===================================================================

Nothing here reads or writes a socket: threads and event loops use it alike.
"""

import re
import struct
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import msgspec

from ganeti.base import errors
from ganeti.base.text import control_chars

PATH: Final = "/console"
PROTOCOL: Final = "ganeti-console"
HEADER: Final = "X-Ganeti-Console"
DATA: Final = 0
NOTICE: Final = 1
END: Final = 2
EOF: Final = 3
#: Bytes that one frame carries.
MAX_DATA: Final = 16 * 1024
#: Bytes of an answer's head, and of the text of a refusal.
MAX_HEAD: Final = 8 * 1024
MAX_REFUSAL: Final = 64 * 1024
#: Characters of a text of the other side that are shown.
_MAX_TEXT: Final = 500
_FRAME: Final = struct.Struct(">BH")
_STATUS: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3}) [^\r\n]*")
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *([0-9]{1,6}) *\r\n")

#: Consoles that can be relayed: the serial line or terminal, and the display by VNC.
Kind = Literal["serial", "vnc"]
KINDS: Final = ("serial", "vnc")
#: Wanted by a viewer if somebody has the console already: an error, to see it without
#: sending anything, or to have it in place of the present viewer.
Mode = Literal["refuse", "watch", "take"]
#: Text that binds a ticket to a session of whoever asked for it.
Session = Annotated[str, msgspec.Meta(max_length=64)]


class Opening(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ticket of a viewer, and the console that it asks for.

    Attributes:
        ticket: of the master, consumed by this.
        instance: uuid of the instance.
        kind: of the console.
        session: for which the ticket was issued.
        viewer: what to do if the console has a viewer.
    """

    ticket: Annotated[str, msgspec.Meta(max_length=128)]
    instance: Annotated[str, msgspec.Meta(max_length=64)]
    kind: Kind
    session: Session = ""
    viewer: Mode = "refuse"


class Message(msgspec.Struct, frozen=True):
    """A message of a node about a connection.

    Attributes:
        event: of a notice: ``open``, ``joined`` or ``left``; of an end: ``ended`` (the
            guest has closed the console: it stopped, or it has moved), ``taken`` (by
            another viewer), ``slow`` (the viewer does not read), ``stopping`` (the node
            daemon stops), ``failed`` or ``protocol``.
        text: one sentence for people.
        role: of an ``open``: ``control``, or ``watch``.
    """

    event: str
    text: str
    role: str = ""


class Refused(errors.GenericError):
    """The node has refused a console; has the status of HTTP."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Malformed(errors.GenericError):
    """The other side does not keep to the form of a stream."""


def parse_opening(text: str) -> Opening:
    """Return what a viewer presents. Raises Malformed."""
    try:
        return msgspec.json.decode(text[:MAX_HEAD], type=Opening)
    except (msgspec.DecodeError, UnicodeError) as err:
        raise Malformed(f"{HEADER}: {err}") from err


def request_head(opening: Opening, host: str) -> bytes:
    """Return the request of a viewer."""
    value = msgspec.json.encode(opening).decode("ascii")
    return _head(
        f"GET {PATH} HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        f"Upgrade: {PROTOCOL}",
        f"{HEADER}: {value}",
    )


def accepted_head() -> bytes:
    """Return the answer of a node before the frames."""
    return _head(
        "HTTP/1.1 101 Switching Protocols",
        "Connection: Upgrade",
        f"Upgrade: {PROTOCOL}",
    )


def refusal(status: HTTPStatus, text: str) -> bytes:
    """Return the answer of a node that refuses; the connection ends with it."""
    error = {"code": status.value, "message": text, "explain": status.phrase}
    body = msgspec.json.encode(error)
    head = _head(
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return head + body


def _head(*lines: str) -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def frame(kind: int, data: bytes = b"") -> bytes:
    """Return one frame of at most `MAX_DATA` bytes."""
    return _FRAME.pack(kind, len(data)) + data


def message(kind: int, event: str, text: str, role: str = "") -> bytes:
    """Return a frame with a `Message`."""
    return frame(kind, msgspec.json.encode(Message(event, text, role)))


def frames_of(data: bytes) -> bytes:
    """Return data of any length as frames."""
    parts = range(0, len(data), MAX_DATA)
    return b"".join(frame(DATA, data[at : at + MAX_DATA]) for at in parts)


def parse_message(data: bytes) -> Message:
    """Return what a node says, without control characters. Raises Malformed."""
    try:
        parsed = msgspec.json.decode(data, type=Message)
    except (msgspec.DecodeError, UnicodeError) as err:
        raise Malformed(f"a message of the console is malformed: {err}") from err
    return Message(
        parsed.event[:_MAX_TEXT], _shown(parsed.text), parsed.role[:_MAX_TEXT]
    )


def _shown(text: Any) -> str:
    return control_chars.escape(str(text)[:_MAX_TEXT])


class Decoder:
    """Takes frames out of bytes that come in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the kind and the data of each frame that is complete.

        Raises:
            Malformed: a frame is longer than any may be.
        """
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            kind, size = _FRAME.unpack_from(self._buffer)
            if size > MAX_DATA:
                raise Malformed(
                    f"a frame of the console: wanted at most {MAX_DATA} bytes, found"
                    f" {size}"
                )
            end = _FRAME.size + size
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[_FRAME.size : end])
            del self._buffer[:end]
            yield kind, content


class AnswerReader:
    """Reads the answer to a request that comes in pieces."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> bytes | None:
        """Return what follows the head of an answer with status 101, None before it.

        Raises:
            Refused: the node refuses, with its text.
            Malformed: this is no answer.
        """
        self._buffer += data
        head, mark, rest = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            if len(self._buffer) > MAX_HEAD:
                raise Malformed("the answer of the node daemon has no end of its head")
            return None
        status = _STATUS.fullmatch(head.partition(b"\r\n")[0])
        if status is None:
            raise Malformed("the node daemon does not answer by HTTP")
        if int(status[1]) == HTTPStatus.SWITCHING_PROTOCOLS:
            return rest
        length = _LENGTH.search(head + b"\r\n")
        size = min(int(length[1]) if length else 0, MAX_REFUSAL)
        if len(rest) < size:
            return None
        raise Refused(_explanation(rest[:size], int(status[1])), int(status[1]))


def _explanation(body: bytes, status: int) -> str:
    try:
        error = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        return f"the node daemon answers with status {status}"
    return _shown(error.get("message", "")) or f"status {status}"
