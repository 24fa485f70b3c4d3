"""Change-sets and whole copies as bytes: for the change log and for candidates.

Records are JSON inside MessagePack; the address pools of large networks are rows of
their own, see `ganeti.store.pools`. On the way to a node the bytes are base64
text, because node calls are JSON.
"""

import base64
import re
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from ganeti.base import errors
from ganeti.model import objects
from ganeti.model.objects import TABLES, Network, Snapshot, Update
from ganeti.store import features, pools
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


class Stored(NamedTuple):
    """The state that changes build on.

    Attributes:
        snapshot: the records that are stored.
        used: features of their stored form.
    """

    snapshot: Snapshot = Snapshot()
    used: Collection[str] = ()


NOTHING_STORED: Final = Stored()


def rows(
    changes: Iterable[Change],
    used: Collection[str] = features.KNOWN,
    before: Stored = NOTHING_STORED,
) -> list[Row]:
    """Return table, key and stored form of each change; the last of a key wins.

    Args:
        changes: the changes.
        used: features of the stored form that may be used.
        before: the state that they build on.
    """
    newest: dict[tuple[str, str], objects.Record | bytes | None] = {}
    for table, key, value in changes:
        newest[table, key] = value
    changed: list[Row] = []
    for (table, key), value in newest.items():
        if table == pools.TABLE:
            changed += _network_rows(key, cast("Network | None", value), used, before)
        elif isinstance(value, objects.Record):
            changed.append((table, key, objects.encode(value)))
        else:
            changed.append((table, key, value))
    return changed


def _network_rows(
    key: str, network: Network | None, used: Collection[str], before: Stored
) -> list[Row]:
    old = before.snapshot.networks.get(key)
    may_split = features.POOL_ROWS in used
    was_in_rows = features.POOL_ROWS in before.used and pools.is_large(old)
    if network is not None and not (may_split and pools.is_large(network)):
        changed = list(pools.rows(key, old, None, was_in_rows=was_in_rows))
        # Its own row is replaced, not removed.
        data = _pack_record(pools.TABLE, objects.encode(network), used)
        return [(pools.TABLE, key, data), *changed[1:]]
    return list(pools.rows(key, old, network, was_in_rows=was_in_rows))


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


def to_changes(changed: Iterable[Row], before: Snapshot | None = None) -> list[Change]:
    """Return rows as updates and documents.

    Args:
        changed: the rows of a group.
        before: the records that the group changes, None if they are not known.

    Raises:
        ConfigurationError: a record cannot be read.
        StorageError: a record has changed in part, and it is not known before.
    """
    changes: list[Change] = []
    networks: list[tuple[str, bytes | None]] = []
    for table, key, data in changed:
        if table == pools.TABLE:
            networks.append((key, data))
        else:
            changes.append(_to_change(table, key, data))
    if not networks:
        return changes
    for key, change in pools.split(networks).items():
        if change.is_partial and before is None:
            raise errors.StorageError(
                f"networks {key}: changed in part, and not known before that"
            )
        old = before.networks.get(key) if before else None
        changes.append(_to_network(key, change, old))
    return changes


def to_updates(table: str, stored: Iterable[tuple[str, bytes]]) -> list[Update]:
    """Return all rows of a table of records.

    Raises:
        ConfigurationError: a record cannot be read; the text begins with its table
            and key.
    """
    updates = []
    key = ""
    try:
        if table == pools.TABLE:
            for key, change in pools.split(stored).items():
                updates.append(_to_network(key, change, None))
        else:
            cls = TABLES[table]
            for key, data in stored:
                record = objects.decode(cls, _unpack_record(data))
                updates.append(Update(table, key, record))
    except errors.ConfigurationError as err:
        raise errors.ConfigurationError(f"{table} {key}: {err}") from err
    return updates


def _to_network(key: str, change: pools.Change, old: Network | None) -> Update:
    if change.is_partial:
        return Update(pools.TABLE, key, pools.merge(change, old))
    if change.head is None:
        return Update(pools.TABLE, key, None)
    network = objects.decode(Network, _unpack_record(change.head))
    return Update(pools.TABLE, key, network)


def _to_change(table: str, key: str, data: bytes | None) -> Change:
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

    That is for candidates whose release does not know pools in rows of their own.
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
