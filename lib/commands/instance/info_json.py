"""The JSON form of ``info``: rows in wire form become objects with named fields."""

from collections.abc import Mapping
from typing import Any, Final

_NIC: Final = ("name", "uuid", "ip", "mac", "mode", "link", "vlan", "network")
_STATUS: Final = (
    "dev_path",
    "major",
    "minor",
    "sync_percent",
    "estimated_time",
    "is_degraded",
    "ldisk_status",
)


def instance(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of one instance."""
    return {
        **data,
        "nics": [dict(zip(_NIC, nic, strict=False)) for nic in data["nics"]],
        "disks": [_disk(disk) for disk in data["disks"]],
    }


def _disk(disk: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **disk,
        "pstatus": _status(disk["pstatus"]),
        "sstatus": _status(disk["sstatus"]),
        "children": [_disk(child) for child in disk["children"]],
    }


def _status(row: list[Any] | None) -> dict[str, Any] | None:
    return dict(zip(_STATUS, row, strict=False)) if row else None
