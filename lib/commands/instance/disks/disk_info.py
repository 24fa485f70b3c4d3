"""Disks in ``gnt-instance info``."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base.constants import disks
from ganeti.base.text import units
from ganeti.commands.cli.output import info_tree

_STATES: Final = {name: number for number, name in disks.LDS_NAMES.items()}
_FAULTY: Final = _STATES["faulty"]
_MARKS: Final = {_FAULTY: " *MISSING DISK*", _STATES["unknown"]: " *UNCERTAIN STATE*"}


def disk_tree(title: str, disk: Mapping[str, Any]) -> info_tree.Pairs:
    """Return the tree of one disk and its children."""
    kind = disk["dev_type"]
    pairs = info_tree.Pairs(
        [(title, f"{kind}, size {units.format_size(disk['size'])}")]
    )
    if disk.get("spindles") is not None:
        pairs.append(("spindles", disk["spindles"]))
    if title.startswith("disk/"):
        pairs.append(("access mode", disk["mode"]))
    pairs += _place(kind, disk)
    for key, where in (("pstatus", "on primary"), ("sstatus", "on secondary")):
        if disk[key]:
            pairs.append((where, _status(kind, disk[key])))
    pairs += _problem(disk)
    if disk.get("params"):
        pairs.append(("parameters", disk["params"]))
    pairs.append(("name", disk["name"]))
    pairs.append(("UUID", disk["uuid"]))
    if disk["children"]:
        children = [
            disk_tree(f"child {index}", child)
            for index, child in enumerate(disk["children"])
        ]
        pairs.append(("child devices", children))
    return pairs


def _problem(disk: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the lines of a mirror that is not complete on both nodes."""
    problem = (disk.get("drbd_info") or {}).get("problem")
    return problem_lines("mirror", problem) if problem else []


def problem_lines(title: str, problem: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the lines of a problem, and of the command that mends it."""
    lines = [(title, problem["text"])]
    if problem["command"]:
        lines.append(("to mend it", problem["command"]))
    return lines


def _place(kind: str, disk: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the location of a disk's data."""
    info = disk.get("drbd_info")
    if kind == "drbd" and info:
        return [
            ("nodeA", f"{info['primary_node']}, minor={info['primary_minor']}"),
            ("nodeB", f"{info['secondary_node']}, minor={info['secondary_minor']}"),
            ("port", info["port"]),
        ]
    logical_id = disk["logical_id"]
    if kind == "plain" and len(logical_id) == 2:
        return [("logical_id", "/".join(map(str, logical_id)))]
    return [("logical_id", str(list(logical_id)))] if logical_id else []


def _status(kind: str, status: list[Any]) -> str:
    path, major, minor, percent, estimate, degraded, ldisk = status
    if not path:
        return "not active"
    numbers = ":".join("N/A" if n is None else str(n) for n in (major, minor))
    text = f"{path} ({numbers})"
    if kind == "drbd":
        text += _sync(percent, estimate)
        text += ", status *DEGRADED*" if degraded else ", status ok"
        text += _MARKS.get(ldisk, "")
    elif kind == "plain" and ldisk == _FAULTY:
        text += " *FAILED* (failed drive?)"
    return text


def _sync(percent: float | None, estimate: float | None) -> str:
    if percent is None:
        return " in sync"
    left = "unknown" if estimate is None else f"{estimate}s"
    return f" *RECOVERING* {percent:5.2f}%, ETA {left}"
