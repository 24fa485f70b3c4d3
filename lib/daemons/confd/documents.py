"""Objects of the configuration as confd shows them: as in config.data, no secrets.

Every node has the key of confd, and the answers travel in clear text. Private
parameters of operating systems are therefore replaced by ``<redacted>``, and the shared
secret of a DRBD disk by null; Ganeti shows both.
"""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base.constants import versions
from ganeti.model.objects import Cluster, Disk, Instance, Snapshot
from ganeti.model.objects.base import Record
from ganeti.model.objects.codec import to_dict

_REDACTED: Final = "<redacted>"
#: Index of the shared secret in the address of a drbd disk.
_DRBD_SECRET: Final = 5
#: A table with more rows does not fit a datagram of 60 KiB: a record has 100 bytes.
MAX_ROWS: Final = 600
_TABLES: Final = (
    *("nodes", "nodegroups", "instances", "networks", "disks", "filters"),
)


class TooLargeError(Exception):
    """The answer does not fit a datagram."""


def _redacted(value: Any) -> Any:
    """Return parameters with the values, on all levels, replaced."""
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    return _REDACTED


def document(record: Record) -> dict[str, Any]:
    """Return a record in the form of ``config.data``, without its secrets."""
    result = to_dict(record)
    if isinstance(record, Instance):
        result["osparams_private"] = _redacted(record.osparams_private)
    elif isinstance(record, Cluster):
        result["osparams_private_cluster"] = _redacted(record.osparams_private_cluster)
    elif isinstance(record, Disk):
        _hide_drbd_secret(result)
    return result


def _hide_drbd_secret(disk: dict[str, Any]) -> None:
    if disk.get("dev_type") == "drbd" and len(disk["logical_id"]) > _DRBD_SECRET:
        disk["logical_id"][_DRBD_SECRET] = None
    for child in disk.get("children", ()):
        _hide_drbd_secret(child)


def resolve(snapshot: Snapshot, pointer: str) -> Any:
    """Return the part of the configuration at a JSON pointer (RFC 6901).

    Only the records on the way are converted, whatever the size of the cluster.

    Raises:
        LookupError: there is no such part, or the pointer is malformed.
        TooLargeError: the part has more records than fit in an answer.
    """
    if pointer and not pointer.startswith("/"):
        raise LookupError(pointer)
    parts = [_unescaped(part) for part in pointer.split("/")[1:]]
    if not parts:
        return _whole(snapshot)
    top, *rest = parts
    if top not in _TABLES:
        return _walk(_top_member(snapshot, top), rest)
    if not rest:
        return _table(snapshot, top)
    return _walk(document(snapshot.table(top)[rest[0]]), rest[1:])


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _top_member(snapshot: Snapshot, name: str) -> Any:
    if name == "cluster":
        return document(snapshot.cluster)
    cluster = snapshot.cluster
    return {
        "version": versions.CONFIG_VERSION,
        "serial_no": snapshot.revision,
        "ctime": cluster.ctime,
        "mtime": cluster.mtime,
    }[name]


def _table(snapshot: Snapshot, name: str) -> dict[str, Any]:
    rows = snapshot.table(name)
    if len(rows) > MAX_ROWS:
        raise TooLargeError(name)
    return {key: document(record) for key, record in rows.items()}


def _whole(snapshot: Snapshot) -> dict[str, Any]:
    result = {
        name: _top_member(snapshot, name)
        for name in ("version", "cluster", "serial_no", "ctime", "mtime")
    }
    return result | {name: _table(snapshot, name) for name in _TABLES}


def _walk(value: Any, parts: list[str]) -> Any:
    for part in parts:
        if isinstance(value, dict):
            value = value[part]
        elif isinstance(value, list):
            # Decimal without sign or leading zeros, as the RFC wants it.
            if not (part.isascii() and part.isdigit()) or str(int(part)) != part:
                raise LookupError(part)
            value = value[int(part)]
        else:
            raise LookupError(part)  # noqa: TRY004 - there is no such part
    return value
