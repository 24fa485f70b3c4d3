"""Change-sets and whole copies as bytes: for the change log and for candidates.

Records are JSON inside MessagePack, those of large networks compressed. On the way to a
node the bytes are base64 text, because node calls are JSON.
"""

import base64
import re
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from ganeti import errors, objects
from ganeti.objects import TABLES, Update
from ganeti.store import features
from ganeti.store.backend import ARCHIVE_TABLE, ARCHIVED, ArchivePage, Group, Row
from ganeti.store.base import Change, Document

#: Size limit of a decompressed copy, in bytes: 300,000 jobs.
_MAX_COPY: Final = 1024 * 1024 * 1024
#: Names that a table of this or of a newer release may have, but not these.
_TABLE: Final = re.compile(r"[a-z][a-z_]{0,31}")
_NO_TABLES: Final = frozenset(("state", "changelog"))
#: Bytes from which on a network is compressed, and the most that it may have then.
_LARGE: Final = 4096
_MAX_RECORD: Final = 16 * 1024 * 1024
#: First byte of compressed data; JSON begins with a brace.
_COMPRESSED: Final = b"x"
_encoder: Final = msgspec.msgpack.Encoder()
_rows_decoder: Final = msgspec.msgpack.Decoder(list[Row])


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """Everything that a master candidate keeps, at one revision.

    Attributes:
        revision: of the last group.
        term: number of the term that the sender has promised.
        digest: of the history.
        rows: all records and documents but the archive.
        written: number of the term that wrote the last group; copies of earlier
            releases lack it.
        history: digests of the newest points of the history, to find where another
            history left it.
    """

    revision: int
    term: int
    digest: bytes
    rows: list[Row]
    written: int = -1
    history: list[bytes] = []

    def written_term(self) -> int:
        """Return the number of the term that wrote the last group."""
        return self.term if self.written < 0 else self.written

    def cluster(self) -> str:
        """Return the uuid of the cluster, empty if there is none yet."""
        records = [data for table, _key, data in self.rows if table == "cluster"]
        return cluster_of(records[0] if records else None)


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Groups in order, each building on the one before.

    ``extra`` are rows of the archive, which are copied without a revision; ``page`` is
    the range of keys that they fill.
    """

    groups: list[tuple[int, int, int, bytes, bytes, bytes]]
    extra: list[Row] = []
    page: ArchivePage | None = None


class _Uuid(msgspec.Struct):
    uuid: str


_copy_decoder: Final = msgspec.msgpack.Decoder(Copy)
_batch_decoder: Final = msgspec.msgpack.Decoder(Batch)


def rows(
    changes: Iterable[Change], used: Collection[str] = features.KNOWN
) -> list[Row]:
    """Return table, key and stored form of each change; the last of a key wins.

    Args:
        changes: the changes.
        used: features of the stored form that may be used.
    """
    newest: dict[tuple[str, str], bytes | None] = {}
    for change in changes:
        table, key, value = change
        newest[table, key] = (
            _pack_record(table, objects.encode(value), used)
            if isinstance(value, objects.Record)
            else value
        )
    return [(table, key, data) for (table, key), data in newest.items()]


def encode_rows(changed: Sequence[Row]) -> bytes:
    """Return the payload of a group."""
    return _encoder.encode(changed)


def decode_rows(payload: bytes) -> list[Row]:
    """Return the rows of a payload.

    Raises:
        StorageError: the bytes are no payload, or name an impossible table.
    """
    try:
        changed = _rows_decoder.decode(payload)
    except (ValueError, msgspec.DecodeError) as err:
        raise errors.StorageError(f"change-set: {err}") from err
    for table, key, _data in changed:
        if not is_table(table):
            raise errors.StorageError(f"change-set: unknown table {table} (key {key})")
    return changed


def is_table(name: str) -> bool:
    """Return whether a table may have this name, be it one of a newer release."""
    is_ours = name not in _NO_TABLES and not name.startswith("sqlite_")
    return is_ours and _TABLE.fullmatch(name) is not None


def to_changes(changed: Iterable[Row]) -> list[Change]:
    """Return rows as updates and documents.

    Raises:
        ConfigurationError: a record cannot be read.
    """
    return [to_change(*row) for row in changed]


def to_change(table: str, key: str, data: bytes | None) -> Change:
    """Return one row as an update or a document. Raises ConfigurationError."""
    cls = TABLES.get(table)
    if cls is None:
        return Document(table, key, data)
    if data is None:
        return Update(table, key, None)
    return Update(table, key, objects.decode(cls, _unpack_record(data)))


def is_compressed(row: Row) -> bool:
    """Return whether a row needs the feature of compressed networks."""
    table, _key, data = row
    return table == "networks" and data is not None and data.startswith(_COMPRESSED)


def is_archived_log(row: Row) -> bool:
    """Return whether a row needs the feature of logs in the archive."""
    table, key, data = row
    return table == ARCHIVE_TABLE and data is not None and "/" in key


def _pack_record(table: str, data: bytes, used: Collection[str]) -> bytes:
    """Return the stored form of a record; that of a large network is compressed.

    The address pool of a /16 network is 131 kB of zeros and ones, which each change of
    one address would write to the change log and send to all candidates.
    """
    is_large = table == "networks" and len(data) >= _LARGE
    is_large = is_large and features.COMPRESSED_NETWORKS in used
    return zlib.compress(data, 1) if is_large else data


def _unpack_record(data: bytes) -> bytes:
    """Return a record in JSON. Raises ConfigurationError."""
    if not data.startswith(_COMPRESSED):
        return data
    try:
        inflater = zlib.decompressobj()
        plain = inflater.decompress(data, _MAX_RECORD)
    except zlib.error as err:
        raise errors.ConfigurationError(f"compressed record: {err}") from err
    if not inflater.eof:
        raise errors.ConfigurationError(
            f"compressed record: wanted at most {_MAX_RECORD} bytes, found more, or its"
            " end is missing"
        )
    return plain


def rows_of(group: Group) -> Sequence[Row]:
    """Return the rows of a group. Raises StorageError."""
    return decode_rows(group.payload) if group.rows is None else group.rows


def encode_batch(
    groups: Sequence[Group],
    extra: Sequence[Row] = (),
    page: ArchivePage | None = None,
) -> str:
    """Return the text that goes to a candidate."""
    packed = _encoder.encode(Batch([group[:6] for group in groups], list(extra), page))
    return base64.b64encode(packed).decode("ascii")


def decode_batch(
    text: str | bytes,
) -> tuple[list[Group], list[Row], ArchivePage | None]:
    """Return what `encode_batch` wrote. Raises StorageError."""
    try:
        batch = _batch_decoder.decode(base64.b64decode(text, validate=True))
    except (ValueError, msgspec.DecodeError) as err:
        raise errors.StorageError(f"change-set: {err}") from err
    if batch.page is not None and batch.page.table not in ARCHIVED:
        raise errors.StorageError(f"change-set: no archive {batch.page.table!r}")
    return [Group(*fields) for fields in batch.groups], batch.extra, batch.page


def encode_copy(copy: bytes) -> str:
    """Return a packed `Copy` as compressed text."""
    return base64.b64encode(zlib.compress(copy, 1)).decode("ascii")


def pack_copy(copy: Copy) -> bytes:
    """Return a copy as bytes."""
    return _encoder.encode(copy)


def decode_copy(text: str | bytes) -> Copy:
    """Return what `encode_copy` wrote. Raises StorageError."""
    try:
        return _copy_decoder.decode(_inflate(base64.b64decode(text, validate=True)))
    except (ValueError, zlib.error, msgspec.DecodeError) as err:
        raise errors.StorageError(f"copy of the store: {err}") from err


def _inflate(data: bytes) -> bytes:
    """Return decompressed data; raise ValueError if it is incomplete or too large."""
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, _MAX_COPY)
    if not inflater.eof:
        raise ValueError(f"incomplete, or larger than {_MAX_COPY} bytes")
    return text


def cluster_of(record: bytes | None) -> str:
    """Return the uuid in a stored cluster record, empty if there is none."""
    try:
        return msgspec.json.decode(record, type=_Uuid).uuid if record else ""
    except (UnicodeDecodeError, msgspec.DecodeError):
        return ""
