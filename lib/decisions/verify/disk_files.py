"""Checks of disk files on nodes: strays, and sizes that differ from the records.

Killed operations leave such files. Files of a running operation are not checked: it
holds locks that the verification of its group waits for.
"""

from collections.abc import Mapping
from typing import Final

from ganeti.decisions.verify.report import Report
from ganeti.model import objects

_SHARED: Final = "sharedfile"
_FILE_TYPES: Final = ("file", _SHARED)
_MIB: Final = 1024 * 1024


def judge(
    report: Report,
    snapshot: objects.Snapshot,
    sizes: Mapping[str, Mapping[str, int]],
) -> None:
    """Check the files of nodes.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        sizes: node uuid -> path -> bytes.
    """
    recorded = _recorded(snapshot)
    seen_shared: set[str] = set()
    for uuid in sorted(sizes, key=lambda uuid: snapshot.nodes[uuid].name):
        for path, size in sorted(sizes[uuid].items()):
            if is_shared := _is_shared(snapshot, path):
                if path in seen_shared:
                    continue
                seen_shared.add(path)
            disk = recorded.get(path)
            if disk is None or not (is_shared or uuid in _nodes(snapshot, disk)):
                _stray(report, snapshot, uuid, path, is_shared=is_shared)
            else:
                _size(report, snapshot, disk, size)


def _recorded(snapshot: objects.Snapshot) -> dict[str, objects.Disk]:
    return {
        str(disk.logical_id[1]): disk
        for disk in snapshot.disks.values()
        if disk.dev_type in _FILE_TYPES
    }


def _is_shared(snapshot: objects.Snapshot, path: str) -> bool:
    directory = snapshot.cluster.shared_file_storage_dir
    return bool(directory) and path.startswith(f"{directory}/")


def _nodes(snapshot: objects.Snapshot, disk: objects.Disk) -> tuple[str, ...]:
    owner = snapshot.disk_owner(disk.uuid)
    if owner is None:
        return disk.nodes
    return (snapshot.instances[owner].primary_node, *disk.nodes)


def _stray(
    report: Report,
    snapshot: objects.Snapshot,
    node: str,
    path: str,
    *,
    is_shared: bool,
) -> None:
    # A job of another group may be creating it.
    may_be_new = is_shared and len(snapshot.nodegroups) > 1
    report.error_if(
        True,
        "ENODEORPHANLV",
        snapshot.nodes[node].name,
        f"disk file {path} belongs to no instance; if nobody needs it, remove it there:"
        f" rm {path}",
        warn_only=may_be_new,
    )


def _size(
    report: Report, snapshot: objects.Snapshot, disk: objects.Disk, size: int
) -> None:
    owner = snapshot.disk_owner(disk.uuid)
    if owner is None or size // _MIB == disk.size:
        return
    name = snapshot.instances[owner].name
    report.error_if(
        True,
        "EINSTANCEFAULTYDISK",
        name,
        f"{disk.iv_name} has {size / _MIB:g} MiB, recorded are {disk.size} MiB; to"
        f" record its real size: gnt-cluster repair-disk-sizes {name}",
        warn_only=size > disk.size * _MIB,
    )
