"""Queries of LVM's volume groups and logical volumes on this node.

This module only reads; disks in volume groups do not belong here. Sizes are in MiB.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.process import SAFE_PATH, Runner

#: Environment of the tools: they read their own configuration and nothing of ours.
_ENVIRONMENT: Final = {
    "PATH": SAFE_PATH,
    "LC_ALL": "C",
    "LVM_SUPPRESS_FD_WARNINGS": "1",
}
_COMMON: Final = ("--reportformat", "json", "--units", "m", "--nosuffix")
#: Limit in seconds for a tool that waits for LVM's locks: the node must answer.
_TIMEOUT_S: Final = 50.0
_VOLUME_FIELDS: Final = "vg_name,lv_name,lv_size,lv_attr,devices"


@dataclasses.dataclass(frozen=True)
class Volume:
    """One logical volume.

    Attributes:
        group: its volume group.
        name: name within the group.
        size_text: MiB with two decimals, as LVM prints it.
        attributes: the ``lv_attr`` word of LVM, see lvs(8).
        devices: devices of its extents, each once, in order; empty for thin volumes.
    """

    group: str
    name: str
    size_text: str
    attributes: str
    devices: tuple[str, ...]

    @property
    def is_virtual(self) -> bool:
        """Whether the volume holds no data of its own."""
        return self.attributes.startswith("v")

    @property
    def is_inactive(self) -> bool:
        """Whether the volume is not active in the kernel."""
        return self.attributes[4:5] == "-"

    @property
    def is_open(self) -> bool:
        """Whether the volume is in use."""
        return self.attributes[5:6] == "o"


def volume_groups(process: Runner) -> dict[str, int]:
    """Return the size of each volume group in whole MiB, by name.

    Raises:
        StorageError: LVM is not installed or failed.
    """
    rows = _report(process, "vgs", ("-o", "vg_name,vg_size"), "vg")
    return {row["vg_name"]: int(float(row["vg_size"])) for row in rows}


def volumes(process: Runner, groups: Sequence[str] = ()) -> list[Volume]:
    """Return the logical volumes of the groups, of all groups if none is named.

    Raises:
        StorageError: LVM is not installed or failed, or a group does not exist.
    """
    rows = _report(process, "lvs", ("-o", _VOLUME_FIELDS, "--", *groups), "lv")
    by_key: dict[tuple[str, str], Volume] = {}
    for row in rows:
        key = row["vg_name"], row["lv_name"]
        # One row for each segment.
        before = by_key[key].devices if key in by_key else ()
        devices = tuple(dict.fromkeys((*before, *_devices(row["devices"]))))
        by_key[key] = Volume(*key, row["lv_size"], row["lv_attr"], devices)
    return list(by_key.values())


def _devices(text: str) -> Iterator[str]:
    """Yield the devices of ``/dev/sda(0),/dev/sdb(10)``, without first extents."""
    for part in text.split(","):
        if part:
            yield part.rpartition("(")[0] or part


def _report(
    process: Runner, tool: str, arguments: Sequence[str], kind: str
) -> list[Mapping[str, Any]]:
    try:
        result = process.run(
            [tool, *_COMMON, *arguments], env=_ENVIRONMENT, timeout_s=_TIMEOUT_S
        )
    except errors.CommandError as err:
        raise errors.StorageError(
            f"cannot query LVM: {err}; its tools are in the package lvm2"
        ) from err
    if result.failed:
        stderr = result.stderr.strip().replace("\n", "; ") or "no output"
        raise errors.StorageError(f"{tool} {result.reason}: {stderr}")
    try:
        report = json.loads(result.stdout)["report"]
        return [row for part in report for row in part[kind]]
    except (ValueError, KeyError, TypeError) as err:
        raise errors.StorageError(f"{tool}: no report in its output: {err!r}") from err
