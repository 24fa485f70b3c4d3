"""Reports of collectors, their status, and the signature of the diagnosis.

Pure: times and keys are arguments.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ganeti.base.constants import versions
from ganeti.protocols.confd import wire

#: Category in paths of collectors that have none.
DEFAULT_CATEGORY: Final = "default"
_NANOSECONDS: Final = 1_000_000_000
_encode: Final = msgspec.json.Encoder().encode


class Kind(enum.IntEnum):
    """Kind of a collector, as on the wire."""

    PERFORMANCE = 0
    STATUS = 1


class Code(enum.IntEnum):
    """Code of a status, as on the wire."""

    OK = 0
    #: Bad, and being repaired without anybody's help.
    TEMPORARY = 1
    UNKNOWN = 2
    BAD = 4


@dataclasses.dataclass(frozen=True)
class Status:
    """State of what a collector looks at."""

    code: Code = Code.OK
    message: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the form on the wire."""
        return {"code": int(self.code), "message": self.message}


def merged(statuses: Iterable[Status]) -> Status:
    """Return the worst code, with all messages in lines."""
    every = list(statuses)
    return Status(
        max((item.code for item in every), default=Code.OK),
        "\n".join(item.message for item in every if item.message),
    )


def with_status(data: Any, status: Status) -> dict[str, Any]:
    """Add a status to data; data that is no object becomes the member ``data``."""
    members = dict(data) if isinstance(data, Mapping) else {"data": data}
    return members | {"status": status.as_dict()}


def report(
    name: str, category: str | None, kind: Kind, data: Any, now: float
) -> dict[str, Any]:
    """Return a report as it is sent.

    Args:
        name: of the collector.
        category: None for the default one.
        kind: of the collector.
        data: what it has collected: JSON types.
        now: time of the collection, seconds since 1970.
    """
    return {
        "name": name,
        "version": versions.BUILTIN_DATA_COLLECTOR_VERSION,
        "format_version": 1,
        "timestamp": int(now * _NANOSECONDS),
        "category": category,
        "kind": int(kind),
        "data": data,
    }


def sealed(
    report_: Mapping[str, Any], key: bytes, now: float, *, purpose: bytes = b""
) -> dict[str, str]:
    """Sign a report as a message of confd is signed.

    Args:
        report_: the report.
        key: the whole content of the key file.
        now: time of this machine, seconds since 1970.
        purpose: signed before them, so that the text is nothing else than a report.

    Returns:
        ``msg``, the report as text; ``salt``, the time; ``hmac`` over both.
    """
    text = _encode(report_)
    salt = str(int(now))
    digest = wire.signer(wire.MAGIC_SHA1, key)(purpose + salt.encode() + text)
    return {"msg": text.decode(), "salt": salt, "hmac": digest}
