"""Pages of sorted lists: the order of rows, and the text that says where a page ended.

The order is total: rows compare by the value of one field in natural order, then by
what identifies them. A cursor holds the place of a page's last row in this order, not
the number of rows before it. So a row that comes or goes moves no other row from one
page to another: pages that follow each other neither repeat nor skip a row that does
not change.
"""

import base64
import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ganeti.base.errors import refusal
from ganeti.base.text import nicesort

T = TypeVar("T")

#: Most rows of a page.
MAX_LIMIT: Final = 1000
#: Characters of a text that decide about the order; names are not longer.
_MAX_TEXT: Final = 256
#: Characters of a cursor: two such texts, escaped and encoded.
_MAX_CURSOR: Final = 5000
#: Bytes of the digest in a cursor.
_DIGEST: Final = 9
#: First part of the place of a row without a value, and with one of these types.
_ABSENT, _NUMBER, _TEXT, _LIST = range(4)

#: Position of a row in an order.
Place = tuple[Any, ...]


class Order(NamedTuple):
    """The order of a list: the field that decides it, and its direction."""

    field: str
    descending: bool = False


class Last(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The last row of a page: value of the sorting field, and what identifies it."""

    value: bool | int | float | str | list[int | float] | None
    identity: list[str | int | None]

    @property
    def place(self) -> Place:
        """Return its position."""
        return place(self.value, self.identity)


def parse_sort(text: str) -> Order:
    """Return the order that a field's name stands for; ``-`` before it reverses it.

    >>> parse_sort("-name")
    Order(field='name', descending=True)
    """
    return Order(text.removeprefix("-"), text.startswith("-"))


def check_limit(limit: int, most: int = MAX_LIMIT) -> None:
    """Refuse a number of rows that is out of bounds."""
    if not 1 <= limit <= most:
        raise refusal(f"limit: wanted a number from 1 to {most}, found {limit}")


def place(value: Any, identity: Sequence[Any]) -> Place:
    """Return the position of a row.

    Args:
        value: of the sorting field: None, a number, a text, or a list of numbers such
            as a time stamp.
        identity: texts or numbers that no other row has all of; the first one, a name
            as a rule, compares in natural order.
    """
    rest = [(each is not None, isinstance(each, str), each) for each in identity[1:]]
    return (*_part(value), *map(_part, identity[:1]), *rest)


def _part(value: Any) -> Place:
    if value is None:
        return (_ABSENT,)
    if isinstance(value, (int, float)):
        return (_NUMBER, value)
    if isinstance(value, (list, tuple)):
        return (_LIST, tuple(value))
    text = value[:_MAX_TEXT] if isinstance(value, str) else str(value)
    return (_TEXT, nicesort.key(text), text)


def following(
    count: int, place_at: Callable[[int], Place], after: Place | None, *, reverse: bool
) -> range:
    """Return the indexes of the rows that follow a place, in the order of the pages.

    Args:
        count: of rows.
        place_at: index of a row in ascending order -> its place.
        after: the place; None for all rows.
        reverse: whether the pages descend.
    """
    rows = range(count)
    if reverse:
        end = count
        if after is not None:
            end = bisect.bisect_left(rows, after, key=place_at)
        return range(end - 1, -1, -1)
    if after is None:
        return rows
    return range(bisect.bisect_right(rows, after, key=place_at), count)


def take(
    rows: Iterable[T], fits: Callable[[T], Any], limit: int
) -> tuple[list[T], bool]:
    """Return the first rows that fit, and whether there are more of them."""
    taken: list[T] = []
    for row in rows:
        if fits(row):
            if len(taken) == limit:
                return taken, True
            taken.append(row)
    return taken, False


def cursor_of(scope: Any, last: Last) -> str:
    """Return the cursor of the page after a row.

    Args:
        scope: what the pages of one list have in common, as JSON.
        last: the row.
    """
    bounded = Last(_short(last.value), [_short(each) for each in last.identity])
    data = msgspec.json.encode(bounded)
    return base64.urlsafe_b64encode(_digest(scope, data) + data).decode().rstrip("=")


def _short(value: Any) -> Any:
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def parse_cursor(scope: Any, text: str) -> Last:
    """Return what a cursor holds.

    Raises:
        OpPrereqError: it is damaged, or of a list with another scope.
    """
    wrong = refusal(
        "cursor: wanted that of a page with the same kind, sort and filter, found"
        f" {text!r:.60}"
    )
    if len(text) > _MAX_CURSOR:
        raise wrong
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        digest, data = raw[:_DIGEST], raw[_DIGEST:]
        if digest != _digest(scope, data):
            raise wrong
        return msgspec.json.decode(data, type=Last)
    except (ValueError, msgspec.MsgspecError) as err:
        raise wrong from err


def _digest(scope: Any, data: bytes) -> bytes:
    """Return what ties the place to its list; it is no secret."""
    return hashlib.sha256(msgspec.json.encode(scope) + b"\n" + data).digest()[:_DIGEST]
