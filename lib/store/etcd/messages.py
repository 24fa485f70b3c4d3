"""Requests and answers of etcd's JSON gateway, as far as the store needs them.

Bytes are base64 in JSON, and 64-bit numbers are text; `msgspec` converts both.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

#: A part of a request.
Json = Mapping[str, Any]

#: Codes of gRPC that the store distinguishes.
UNKNOWN: Final = 2
DEADLINE: Final = 4
OUT_OF_RANGE: Final = 11
UNAVAILABLE: Final = 14


class KeyValue(msgspec.Struct, frozen=True):
    """One key at one moment.

    Attributes:
        key: its name.
        value: its content.
        create_revision: of etcd, in which it was made.
        mod_revision: of etcd, in which it was written last.
        lease: number of the lease that it ends with, 0 if none.
    """

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class Header(msgspec.Struct, frozen=True):
    """Where the servers stood when they answered."""

    revision: int = 0


class RangeAnswer(msgspec.Struct, frozen=True):
    """Keys of a range, in order."""

    header: Header = Header()
    kvs: list[KeyValue] = []
    more: bool = False


class _Response(msgspec.Struct, frozen=True):
    response_range: RangeAnswer | None = None


class TxnAnswer(msgspec.Struct, frozen=True):
    """The outcome of a transaction: whether all its conditions held."""

    header: Header = Header()
    succeeded: bool = False
    responses: list[_Response] = []

    def first(self, number: int) -> KeyValue | None:
        """Return the first key of the range that is the answer of this number."""
        answer = self.responses[number].response_range
        return answer.kvs[0] if answer is not None and answer.kvs else None


class Lease(msgspec.Struct, frozen=True):
    """A lease: its number, and the seconds that are left."""

    ID: int = 0
    TTL: int = 0


class KeptLease(msgspec.Struct, frozen=True):
    """The answer to a prolongation; without seconds if the lease has ended."""

    result: Lease


class Failure(msgspec.Struct, frozen=True):
    """An error of the servers."""

    message: str = ""
    error: str = ""
    code: int = UNKNOWN


class Event(msgspec.Struct, frozen=True):
    """One key that was written, or removed (``type`` is DELETE)."""

    kv: KeyValue
    type: str = "PUT"


class _News(msgspec.Struct, frozen=True):
    events: list[Event] = []
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    header: Header = Header()


class Watched(msgspec.Struct, frozen=True):
    """One answer of a watch, of one or several whole transactions."""

    result: _News | None = None


def after(prefix: bytes) -> bytes:
    """Return the end of the range of all keys with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def get(
    key: bytes,
    end: bytes | None = None,
    *,
    revision: int = 0,
    limit: int = 0,
) -> Json:
    """Return the body that reads a key, or the keys from ``key`` to below ``end``."""
    return {
        "key": key,
        **({} if end is None else {"range_end": end}),
        **({"revision": revision} if revision else {}),
        **({"limit": limit} if limit else {}),
    }


def read(key: bytes) -> Json:
    """Return the operation that reads a key."""
    return {"request_range": get(key)}


def put(key: bytes, value: bytes, lease: int = 0) -> Json:
    """Return the operation that writes a key; the key ends with a lease, if given."""
    body = {"key": key, "value": value, **({"lease": lease} if lease else {})}
    return {"request_put": body}


def delete(key: bytes, end: bytes | None = None) -> Json:
    """Return the operation that removes a key or a range."""
    body = {"key": key, **({} if end is None else {"range_end": end})}
    return {"request_delete_range": body}


def is_at(key: bytes, mod_revision: int) -> Json:
    """Return the condition that a key was written last in this revision, 0 if never."""
    return {
        "key": key,
        "target": "MOD",
        "mod_revision": mod_revision,
        "result": "EQUAL",
    }


def transaction(
    conditions: Sequence[Json], then: Sequence[Json], otherwise: Sequence[Json] = ()
) -> Json:
    """Return the body of a transaction."""
    return {"compare": conditions, "success": then, "failure": otherwise}
