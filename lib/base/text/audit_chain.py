"""The form of the audit log: lines of JSON, each with the digest of the one before.

`ganeti.daemons.masterd.audit` writes the log, ``gnt-cluster audit`` reads and verifies
it. Nothing here reads files.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

#: Name of the log in the log directory; rotated files begin with it.
LOG_NAME: Final = "audit.log"
#: Name of the file in the state directory with the number and digest of the last line.
HEAD_NAME: Final = "audit-head"
#: Bytes of it that are read.
MAX_HEAD: Final = 1000
#: Longest line in bytes; what does not fit is left out of it.
MAX_LINE: Final = 64 << 10
#: Digest before the first line of all.
NOTHING: Final = "0" * 64


def digest(line: bytes) -> str:
    """Return the SHA-256 of a line without its end, in hexadecimal digits."""
    return hashlib.sha256(line).hexdigest()


def head_of(data: bytes) -> tuple[int, str]:
    """Return the number and digest in a file ``HEAD_NAME``.

    Raises:
        ValueError: it has none.
    """
    value = json.loads(data)
    if isinstance(value, list) and list(map(type, value)) == [int, str]:
        return value[0], value[1]
    raise ValueError(f"{HEAD_NAME}: wanted a number and a digest")


def parse(line: bytes) -> dict[str, Any] | None:
    """Return a line's object; None if it is no line of an audit log."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_record = isinstance(value, dict) and type(value.get("n")) is int
    return value if is_record and isinstance(value.get("prev"), str) else None


class Verifier:
    """Checks the lines of a log from the oldest to the newest.

    Attributes:
        first: the oldest object; None before.
        last: number and digest of the newest line; numbers begin with 1.
    """

    def __init__(self, head: tuple[int, str] | None) -> None:
        """Begin.

        Args:
            head: number and digest of the last line that the writer recorded.
        """
        self._head = head
        self.first: dict[str, Any] | None = None
        self.last: tuple[int, str] = (0, NOTHING)

    def check(self, line: bytes) -> Iterator[str]:
        """Yield what is wrong with the next line."""
        number, before = self.last
        record = parse(line)
        if record is None:
            yield f"after line {number}: not a line of an audit log"
            return
        own = record["n"]
        if self.first is None:
            self.first = record
            number, before = own - 1, record["prev"] if own > 1 else NOTHING
        if own > number + 1:
            yield f"lines {number + 1} to {own - 1} are missing"
        elif own != number + 1:
            yield f"after line {number}: wanted line {number + 1}, found {own}"
        elif record["prev"] != before:
            where = f"line {number}" if number else "the first line"
            yield f"{where} was changed, or line {own}"
        if record.get("lost"):
            yield f"line {own}: {record['lost']} changes before it were not recorded"
        self.last = (own, digest(line))
        if self._head is not None and own == self._head[0]:
            if self._head[1] != self.last[1]:
                yield f"line {own} was changed: its digest is not the recorded one"
            self._head = None

    def end(self) -> Iterator[str]:
        """Yield what is wrong with the end of the log."""
        if self._head is None:
            return
        number, last = self._head[0], self.last[0]
        if number > last:
            yield f"the end is cut: lines {last + 1} to {number} are missing"
        elif self.first is not None and number >= self.first["n"]:
            yield f"line {number}, the last one recorded, is missing"
