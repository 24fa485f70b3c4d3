"""The stored form of large networks: the address pool in rows of its own.

A change of one address would otherwise write the whole pool to the change log and send
it to all candidates. So a large network has one row with all but the pool, and a row
for each `CHUNK` addresses of both arrays that are not all zeros. Rows are absolute: one
that is written twice changes nothing, and the last one counts.

=================  ===================================================================
key                value
=================  ===================================================================
UUID               JSON: sizes of both arrays, null if absent, and all else
UUID/u0000, …      addresses of instances, see `_pack`
UUID/e0000, …      addresses that administrators reserve
=================  ===================================================================

The rows of a group say the same to a file, where a chunk without a row is zeros, and to
a follower, to whom it is as it was before the group.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.model import objects
from ganeti.model.objects import Network
from ganeti.store.backend import Row

TABLE: Final = "networks"
#: Addresses in one row.
CHUNK: Final = 512
#: Addresses that are compared at once.
_BLOCK: Final = 16 * CHUNK
#: Addresses of both arrays from which on they are in rows: a /22 network. The most that
#: they may have then; a /16 network has 131,072.
_SMALLEST: Final = 2048
_LARGEST: Final = 1 << 20
#: First byte of a network whose pool is in rows; other records begin otherwise.
_IN_ROWS: Final = b"["
_KEY: Final = re.compile(r"(.+)/([ue])([0-9]{4})", re.DOTALL)
_BITS: Final = b"b"
_TEXT: Final = b"t"


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """All of a network but its pool: sizes of the arrays, and the record."""

    used: int | None
    external: int | None
    record: msgspec.Raw


_head_decoder: Final = msgspec.json.Decoder(_Head)


class Change(NamedTuple):
    """A network in stored form.

    Attributes:
        chunks: its pool rows: array and number -> data, None if removed.
        has_head: its own row is there, too.
        head: its own row, None if removed.
    """

    chunks: dict[tuple[str, int], bytes | None]
    has_head: bool = False
    head: bytes | None = None

    @property
    def is_partial(self) -> bool:
        """Whether the rows leave open what the network is, see `merge`."""
        if not self.has_head:
            return True
        return self.head is not None and self.head.startswith(_IN_ROWS)


def is_large(network: objects.Record | None) -> bool:
    """Return whether the pool of a record would be in rows of its own."""
    if not isinstance(network, Network) or _KEY.fullmatch(network.uuid):
        return False
    used, external = network.reservations or "", network.ext_reservations or ""
    return _SMALLEST <= len(used) + len(external) <= _LARGEST


def owner(key: str) -> str:
    """Return the key of the network that a row of its pool is of, other keys as is."""
    match = _KEY.fullmatch(key)
    return match.group(1) if match else key


def is_in_rows(row: Row) -> bool:
    """Return whether a row is of a network whose pool is in rows, or of its pool."""
    table, key, data = row
    if table != TABLE:
        return False
    is_head = data is not None and data.startswith(_IN_ROWS)
    return is_head or _KEY.fullmatch(key) is not None


# Writing
def rows(
    key: str, old: Network | None, new: Network | None, *, was_in_rows: bool
) -> Iterator[Row]:
    """Yield the rows that change a network whose pool is in rows before or after.

    Args:
        key: of the network.
        old: as it is stored, None if it is not.
        new: as it shall be, None to remove it; stored in rows if it is large.
        was_in_rows: the old pool is stored in rows.
    """
    is_now = is_large(new)
    if new is None:
        yield TABLE, key, None
    elif is_now and not (was_in_rows and _is_same_head(old, new)):
        yield TABLE, key, _encode_head(new)
    if not (is_now or was_in_rows):
        return
    for letter, before, after in _arrays(old, new if is_now else None):
        chunks = _differing(before, after) if was_in_rows else _all(before, after)
        for number, was, now in chunks:
            is_empty = not now.strip("0")
            # A row to remove may be missing in the file, if the old pool is not in
            # rows. A follower needs it nevertheless.
            if not is_empty:
                yield TABLE, f"{key}/{letter}{number:04}", _pack(now)
            elif was.strip("0"):
                yield TABLE, f"{key}/{letter}{number:04}", None


def _arrays(old: Network | None, new: Network | None) -> Iterator[tuple[str, str, str]]:
    yield "u", (old and old.reservations) or "", (new and new.reservations) or ""
    yield (
        "e",
        (old and old.ext_reservations) or "",
        (new and new.ext_reservations) or "",
    )


def _all(before: str, after: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, old and new text of each chunk."""
    for number, start in enumerate(range(0, max(len(before), len(after)), CHUNK)):
        yield number, before[start : start + CHUNK], after[start : start + CHUNK]


def _differing(before: str, after: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, old and new text of each chunk that differs."""
    # Most changes leave one array as it is, and it is the same object then.
    if before is after:
        return
    for start in range(0, max(len(before), len(after)), _BLOCK):
        was, now = before[start : start + _BLOCK], after[start : start + _BLOCK]
        if was == now:
            continue
        for number, old, new in _all(was, now):
            if old != new:
                yield start // CHUNK + number, old, new


def _without_pool(network: Network) -> Network:
    return network.replace(reservations=None, ext_reservations=None)


def _sizes(network: Network) -> tuple[int | None, int | None]:
    used, external = network.reservations, network.ext_reservations
    return (
        None if used is None else len(used),
        None if external is None else len(external),
    )


def _is_same_head(old: Network | None, new: Network) -> bool:
    if old is None or _sizes(old) != _sizes(new):
        return False
    return _without_pool(old) == _without_pool(new)


def _encode_head(network: Network) -> bytes:
    record = msgspec.Raw(objects.encode(_without_pool(network)))
    return msgspec.json.encode(_Head(*_sizes(network), record))


def _pack(chunk: str) -> bytes:
    """Return zeros and ones as bits, any other text as it is."""
    if chunk.strip("01"):
        return _TEXT + chunk.encode()
    return _BITS + int(chunk, 2).to_bytes((len(chunk) + 7) // 8, "big")


def _unpack(data: bytes | None, size: int) -> str:
    """Return a chunk. Raises ConfigurationError."""
    if data is None:
        return "0" * size
    kind, body = data[:1], data[1:]
    try:
        if kind == _TEXT and len(text := body.decode()) == size:
            return text
    except UnicodeDecodeError as err:
        raise errors.ConfigurationError(f"address pool: {err}") from err
    number = int.from_bytes(body, "big")
    if kind != _BITS or len(body) != (size + 7) // 8 or number >> size:
        raise errors.ConfigurationError(
            f"address pool: wanted {size} addresses, found {len(body)} bytes of kind"
            f" {kind!r}"
        )
    return f"{number:0{size}b}"


# Reading
def split(
    stored: Iterable[tuple[str, bytes | None]],
) -> dict[str, Change]:
    """Return the rows of the table by network."""
    changes: dict[str, Change] = {}
    for key, data in stored:
        match = _KEY.fullmatch(key)
        if match is None or (data is not None and data[:1] not in (_BITS, _TEXT)):
            known = changes.get(key)
            changes[key] = Change(known.chunks if known else {}, True, data)
            continue
        uuid, letter, number = match.groups()
        change = changes.setdefault(uuid, Change({}))
        change.chunks[letter, int(number)] = data
    return changes


def merge(change: Change, old: Network | None) -> Network:
    """Return a network after a change of rows that is partial.

    Args:
        change: the rows.
        old: the network before, None to read a file, which has all rows.

    Raises:
        ConfigurationError: a row is damaged, or the network's own row is missing.
    """
    if change.head is not None:
        try:
            head = _head_decoder.decode(change.head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            raise errors.ConfigurationError(f"Network: {err}") from err
        record, sizes = objects.decode(Network, bytes(head.record)), head
    elif old is None:
        raise errors.ConfigurationError("address pool without its network")
    else:
        record, sizes = old, _Head(*_sizes(old), msgspec.Raw())
    used = old.reservations if old else None
    external = old.ext_reservations if old else None
    return record.replace(
        reservations=_array(change.chunks, "u", used, sizes.used),
        ext_reservations=_array(change.chunks, "e", external, sizes.external),
    )


def _array(
    chunks: Mapping[tuple[str, int], bytes | None],
    letter: str,
    old: str | None,
    size: int | None,
) -> str | None:
    if size is None:
        return None
    if not 0 <= size <= _LARGEST:
        raise errors.ConfigurationError(f"address pool: {size} addresses")
    wanted = sorted(number for name, number in chunks if name == letter)
    text = old or ""
    if len(text) != size:
        text = text[:size].ljust(size, "0")
    pieces, end = [], 0
    for number in wanted:
        start = number * CHUNK
        if start >= size:
            break  # of a larger array that is replaced
        pieces.append(text[end:start])
        end = min(start + CHUNK, size)
        pieces.append(_unpack(chunks[letter, number], end - start))
    return "".join([*pieces, text[end:]]) if pieces else text
