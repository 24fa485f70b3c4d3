"""Strict reading of requests: what could be understood in two ways is refused.

A proxy that reads a request in another way than this server would pass on one request,
and this server would see two.
"""

import re
from typing import Any, Final

from cheroot import server as http_server

_CRLF: Final = b"\r\n"
#: A token of RFC 9110, section 5.6.2.
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Headers that may stand in a request once, in the library's spelling.
_ONCE: Final = frozenset(
    {b"Authorization", b"Content-Length", b"Content-Type", b"Host"}
    | {b"Transfer-Encoding"}
)
#: Headers whose values are lists, so that several are one with commas.
_LISTS: Final = frozenset(
    http_server.comma_separated_headers  # type: ignore[attr-defined]
)
#: White space around values. Python takes further characters for it; proxies do not.
_SPACE: Final = b" \t"
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")
#: Longest line before a chunk, in bytes.
_MAX_LINE: Final = 256


class BodyTooLargeError(ValueError):
    """A chunked body is larger than the server permits."""


class HeaderReader(http_server.HeaderReader):
    """Reads headers; refuses doubtful ones with status 400."""

    def __call__(self, rfile: Any, hdict: Any = None) -> Any:
        """Return the headers by name; a header that occurs again replaces the other.

        Raises:
            ValueError: they are malformed.
        """
        headers = {} if hdict is None else hdict
        while (line := rfile.readline()) != _CRLF:
            if not line:
                raise ValueError("Illegal end of headers.")
            if not line.endswith(_CRLF):
                raise ValueError("HTTP requires CRLF terminators")
            if line[:1] in {b" ", b"\t"}:
                raise ValueError("Illegal continuation line.")
            name, colon, value = line.removesuffix(_CRLF).partition(b":")
            if not colon or not _NAME.fullmatch(name):
                raise ValueError("Illegal header line.")
            value = value.strip(_SPACE)
            if _CONTROL.search(value):
                raise ValueError("Illegal character in a header.")
            key = name.title()
            if key not in _ONCE and key.replace(b"_", b"-") in _ONCE:
                # Both have one name in the environment of the application.
                raise ValueError("Illegal underscore in a header.")
            if key in headers and key in _ONCE:
                raise ValueError(f"{key.decode()}: the header is given twice")
            if key in headers and key in _LISTS:
                value = headers[key] + b", " + value
            headers[key] = value
        return headers


class Chunks(http_server.ChunkedRFile):
    """The content of a chunked body."""

    rfile: Any
    maxlen: int
    bytes_read: int
    buffer: bytes
    closed: bool

    def _fetch(self) -> None:
        """Read the next chunk.

        Raises:
            BodyTooLargeError: the body has too many bytes.
            ValueError: it is malformed, or ends early.
        """
        if self.closed:
            return
        line = self.rfile.readline(_MAX_LINE)
        size = line.removesuffix(_CRLF).partition(b";")[0].strip(_SPACE)
        if not line.endswith(_CRLF) or not _SIZE.fullmatch(size):
            raise ValueError("malformed size of a chunk")
        count = int(size, 16)
        self.bytes_read += len(line) + count
        if self.maxlen and self.bytes_read > self.maxlen:
            raise BodyTooLargeError
        if not count:
            self.closed = True
            return
        self.buffer += self.rfile.read(count)
        if self.rfile.read(len(_CRLF)) != _CRLF:
            raise ValueError("malformed end of a chunk")
