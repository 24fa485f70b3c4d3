"""Keys and values of a store in etcd.

=================== ==================================================================
key                 value
=================== ==================================================================
PREFIX/end          the end of the history: a `Mark`, in JSON
PREFIX/term         the newest term, ``NUMBER:OWNER``
PREFIX/leader       the same, while its owner has the lease
PREFIX/rows/T/K     the row K of table T, see `pack`
PREFIX/staged/N     piece N of the payload of a large group
PREFIX/moving       a `Move`, in JSON; no master may begin while it is there
=================== ==================================================================
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.store.backend import NO_HISTORY, Group, Row
from ganeti.store.etcd import messages

#: Operations of one transaction; etcd takes 128, of which some are ours.
MAX_OPERATIONS: Final = 120
#: Bytes of the keys and values of one transaction; etcd takes 1.5 MiB.
MAX_BYTES: Final = 1024 * 1024
#: Bytes from which on values are compressed, and the most that one may have then.
_LARGE: Final = 1024
_MAX_VALUE: Final = 64 * 1024 * 1024
_PLAIN: Final = b"\0"
_COMPRESSED: Final = b"z"


class Mark(msgspec.Struct, frozen=True):
    """The end of the history, as the last group has left it.

    Attributes:
        base: revision before the group.
        revision: revision after it.
        term: number of the term that wrote it.
        parent: digest of the history before, hexadecimal.
        digest: digest of the history.
        removed: position, table and key of each row that the group removed; the rows
            that it wrote are in the same transaction of etcd.
        staged: number of keys that have the payload of the group, if it is large; its
            rows may not all be in their places yet.
    """

    base: int = 0
    revision: int = 0
    term: int = 0
    parent: str = NO_HISTORY.hex()
    digest: str = NO_HISTORY.hex()
    removed: list[tuple[int, str, str]] = []
    staged: int = 0

    @property
    def end(self) -> tuple[int, bytes]:
        """Revision and digest."""
        return self.revision, bytes.fromhex(self.digest)

    def is_of(self, group: Group) -> bool:
        """Return whether this is the end that a group leaves."""
        return self.end == (group.revision, group.digest)

    def to_group(self, payload: bytes) -> Group:
        """Return the group with its payload."""
        return Group(
            self.base,
            self.revision,
            self.term,
            bytes.fromhex(self.parent),
            bytes.fromhex(self.digest),
            payload,
        )


class Move(msgspec.Struct, frozen=True):
    """A store that is being moved to these keys, or was moved to a file.

    Attributes:
        cluster: uuid.
        revision: of the store.
        digest: of its history, hexadecimal.
        is_out: it was moved to a file.
    """

    cluster: str
    revision: int
    digest: str
    is_out: bool


def decode_move(data: bytes) -> Move:
    """Return the move in a value. Raises ConfigurationError."""
    try:
        return msgspec.json.decode(data, type=Move)
    except ValueError as err:
        raise errors.ConfigurationError(f"move in etcd: damaged: {err}") from err


def mark_of(group: Group, rows: Sequence[Row], staged: int = 0) -> Mark:
    """Return the mark that a group leaves."""
    # The payload of a staged group has its removals itself.
    removed = [
        (position, table, key)
        for position, (table, key, data) in enumerate(rows)
        if data is None and not staged
    ]
    return Mark(
        group.base,
        group.revision,
        group.term,
        group.parent.hex(),
        group.digest.hex(),
        removed,
        staged,
    )


def encode_mark(mark: Mark) -> bytes:
    """Return the value of a mark."""
    return msgspec.json.encode(mark)


def decode_mark(data: bytes | None) -> Mark:
    """Return the mark in a value; that of an empty history if there is none.

    Raises:
        ConfigurationError: the value is damaged.
    """
    if data is None:
        return Mark()
    try:
        mark = msgspec.json.decode(data, type=Mark)
        bytes.fromhex(mark.digest + mark.parent)
    except ValueError as err:
        raise errors.ConfigurationError(
            f"end of the history in etcd: damaged: {err}"
        ) from err
    return mark


class Keys:
    """The keys of one store."""

    def __init__(self, prefix: str) -> None:
        root = f"{prefix}/".encode()
        self.root: Final = root
        self.end: Final = root + b"end"
        self.term: Final = root + b"term"
        self.leader: Final = root + b"leader"
        self.rows: Final = root + b"rows/"
        self.staged: Final = root + b"staged/"
        self.moving: Final = root + b"moving"

    def row(self, table: str, key: str) -> bytes:
        """Return the key of a row."""
        return self.rows + f"{table}/{key}".encode()

    def table(self, table: str) -> bytes:
        """Return the prefix of a table's keys."""
        return self.rows + f"{table}/".encode()

    def piece(self, number: int) -> bytes:
        """Return the key of a piece of a staged payload."""
        return self.staged + b"%06d" % number

    def row_of(self, key: bytes) -> tuple[str, str]:
        """Return table and key of a row's key. Raises ConfigurationError."""
        try:
            table, slash, name = key.removeprefix(self.rows).decode().partition("/")
        except UnicodeDecodeError as err:
            raise errors.ConfigurationError(f"key {key!r} in etcd: {err}") from err
        if not (key.startswith(self.rows) and slash):
            raise errors.ConfigurationError(f"key {key!r} in etcd: not of a row")
        return table, name


def operation(keys: Keys, row: Row) -> messages.Json:
    """Return the operation that writes or removes a row.

    Raises:
        StorageError: the row is too large.
    """
    table, key, data = row
    where = keys.row(table, key)
    if data is None:
        return messages.delete(where)
    value = pack(data)
    if len(value) > MAX_BYTES:
        raise errors.StorageError(
            f"store: {table} {key} has {len(value)} bytes, at most {MAX_BYTES} are"
            " possible in etcd; nothing was changed"
        )
    return messages.put(where, value)


def batches(operations: Iterable[messages.Json]) -> Iterator[list[messages.Json]]:
    """Yield operations in groups that one transaction takes."""
    batch: list[messages.Json] = []
    size = 0
    for each in operations:
        if batch and (len(batch) == MAX_OPERATIONS or size + size_of(each) > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += size_of(each)
    if batch:
        yield batch


def size_of(operation: messages.Json) -> int:
    """Return the bytes of the keys and values of an operation."""
    return sum(
        len(value)
        for body in operation.values()
        for value in body.values()
        if isinstance(value, bytes)
    )


def pack(data: bytes) -> bytes:
    """Return the value of a row: jobs and their logs shrink to a fifth."""
    if len(data) < _LARGE:
        return _PLAIN + data
    return _COMPRESSED + zlib.compress(data, 1)


def unpack(value: bytes) -> bytes:
    """Return a row's data. Raises ConfigurationError if the value is damaged."""
    kind, rest = value[:1], value[1:]
    if kind == _PLAIN:
        return rest
    if kind != _COMPRESSED:
        raise errors.ConfigurationError("row in etcd: damaged: unknown form")
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(rest, _MAX_VALUE)
    except zlib.error as err:
        raise errors.ConfigurationError(f"row in etcd: damaged: {err}") from err
    if not inflater.eof:
        raise errors.ConfigurationError("row in etcd: damaged: incomplete or too large")
    return data


def rows_with_removed(written: Iterable[Row], mark: Mark) -> list[Row]:
    """Return the rows of a group in their order: those written, and those removed."""
    rows = list(written)
    for position, table, key in mark.removed:
        rows.insert(position, (table, key, None))
    return rows
