"""Checks of a node's logical volumes, DRBD, disk files and exports against the records.

Killed operations leave volumes, minors and files. Those of a running operation are not
checked: it holds locks that the verification of its group waits for. Nor are those that
the master removes by itself later, such as the old copy of a replaced disk. An export
that is being made is written to all the time, so the node does not count it.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants.protocols import nodeverify
from ganeti.base.text import patterns
from ganeti.decisions.verify.report import Report
from ganeti.model import objects
from ganeti.model.objects import params

_PLAIN: Final = "plain"
#: Part by which physical volumes of exclusive storage may be smaller than the largest.
_SIZE_MARGIN: Final = 0.01
_DRBD: Final = "drbd"
#: Index of the first node's minor in the address of a drbd disk.
_MINOR: Final = 3


def judge_volumes(
    report: Report,
    snapshot: objects.Snapshot,
    node: objects.Node,
    answer: Mapping[str, Any],
    *,
    noted: Iterable[objects.Disk] = (),
) -> None:
    """Check what a node that runs instances says about its volumes and minors.

    Args:
        report: gets the errors.
        snapshot: has the records.
        node: the node.
        answer: its answer.
        noted: disks without a record there that the master is to remove.
    """
    later = tuple(noted)
    if not node.vm_capable:
        return
    cluster = snapshot.cluster
    if cluster.volume_group_name:
        _volumes(report, snapshot, node, answer.get(nodeverify.NV_LVLIST), later)
        if params.has_exclusive_storage(snapshot, node.uuid):
            _exclusive(report, snapshot, node, answer)
    if _DRBD not in cluster.enabled_disk_templates:
        return
    _minors(report, snapshot, node, answer, later)
    if cluster.drbd_usermode_helper:
        _helper(report, cluster, node, answer.get(nodeverify.NV_DRBDHELPER))


def _disks(
    snapshot: objects.Snapshot, node: objects.Node
) -> Iterator[tuple[objects.Disk, objects.Instance | None]]:
    for uuid in sorted(snapshot.disks_on_node(node.uuid)):
        owner = snapshot.disk_owner(uuid)
        yield snapshot.disks[uuid], None if owner is None else snapshot.instances[owner]


# Volumes
def _volumes(
    report: Report,
    snapshot: objects.Snapshot,
    node: objects.Node,
    actual: Mapping[str, Any] | None,
    noted: Sequence[objects.Disk],
) -> None:
    """Compare the volumes of the cluster's volume group with the recorded ones."""
    nothing = "unable to list logical volumes"
    if report.error_if(actual is None, "ENODELVM", node.name, nothing):
        return
    group = snapshot.cluster.volume_group_name
    recorded = {volume for disk in noted for volume in _parts(disk)}
    for disk, owner in _disks(snapshot, node):
        for volume in _parts(disk):
            recorded.add(volume)
            is_missing = volume.startswith(f"{group}/") and volume not in (actual or ())
            if owner is None or disk.forthcoming or owner.forthcoming:
                continue
            report.error_if(
                is_missing,
                "EINSTANCEMISSINGDISK",
                owner.name,
                f"{disk.iv_name}: logical volume {volume} is missing on node"
                f" {node.name}",
            )
    reserved = list(_reserved(snapshot.cluster))
    for volume in sorted(set(actual or ()) - recorded):
        report.error_if(
            not _is_reserved(reserved, volume),
            "ENODEORPHANLV",
            node.name,
            f"logical volume {volume} belongs to no instance; if nobody needs it,"
            f" remove it there: lvremove {volume}",
        )


def _exclusive(
    report: Report,
    snapshot: objects.Snapshot,
    node: objects.Node,
    answer: Mapping[str, Any],
) -> None:
    """Check that disks share no physical volume, and that these have one size."""
    group = snapshot.cluster.volume_group_name
    units = answer.get(nodeverify.NV_PVLIST)
    shared = answer.get(nodeverify.NV_EXCLUSIVEPVS)
    nothing = "unable to list physical volumes, for exclusive storage"
    is_unknown = units is None or shared is None
    if report.error_if(is_unknown, "ENODELVM", node.name, nothing):
        return
    sizes = sorted((size, unit) for unit, size in units or ())
    if sizes:
        (least, small), (most, large) = sizes[0], sizes[-1]
        report.error_if(
            least < most * (1 - _SIZE_MARGIN),
            "EGROUPDIFFERENTPVSIZE",
            snapshot.nodegroups[node.group].name,
            f"exclusive storage: physical volumes of {group} on node {node.name} differ"
            f" in size: {small} has {least:.0f} MiB, {large} {most:.0f} MiB",
        )
    for unit, names in shared or ():
        own = [name for name in names if name.startswith(f"{group}/")]
        report.error_if(
            bool(own),
            "ENODELVM",
            node.name,
            f"exclusive storage: physical volume {unit} is shared by"
            f" {', '.join(names)}",
        )


def _reserved(cluster: objects.Cluster) -> Iterator[patterns.Pattern]:
    """Yield the expressions for volumes of others; `cluster.rules` names wrong ones."""
    for text in cluster.reserved_lvs:
        with contextlib.suppress(errors.ParseError):
            yield patterns.compile_(text)


def _is_reserved(reserved: Iterable[patterns.Pattern], volume: str) -> bool:
    """Return whether an administrator's expression is for a volume, or its name."""
    names = (volume, volume.partition("/")[2])
    return any(pattern.fullmatch(name) for pattern in reserved for name in names)


def _parts(disk: objects.Disk) -> list[str]:
    """Return the volumes of a disk as ``group/name``."""
    parts = disk.children or (disk,)
    return [
        "/".join(map(str, part.logical_id)) for part in parts if part.dev_type == _PLAIN
    ]


# DRBD
def _minors(
    report: Report,
    snapshot: objects.Snapshot,
    node: objects.Node,
    answer: Mapping[str, Any],
    noted: Sequence[objects.Disk],
) -> None:
    """Compare the minors in use with the recorded ones.

    Those of a mirror without volumes cannot be activated; the volumes are named.
    """
    actual: list[int] | None = answer.get(nodeverify.NV_DRBDLIST)
    volumes: Mapping[str, Any] | None = answer.get(nodeverify.NV_LVLIST)
    group = f"{snapshot.cluster.volume_group_name}/"
    nothing = (
        "unable to list DRBD's minors: is its kernel module loaded (modprobe drbd)?"
    )
    if report.error_if(actual is None, "ENODEDRBD", node.name, nothing):
        return
    recorded = {_minor(disk, node) for disk in noted if disk.dev_type == _DRBD}
    for disk, owner in _disks(snapshot, node):
        if disk.dev_type != _DRBD:
            continue
        minor = _minor(disk, node)
        recorded.add(minor)
        if owner is None or owner.forthcoming or not owner.disks_active:
            continue
        if _has_lost_all(disk, group, volumes):
            continue
        report.error_if(
            minor not in (actual or ()),
            "ENODEDRBD",
            node.name,
            f"drbd minor {minor} of {disk.iv_name} of instance {owner.name} is not"
            f" active; to activate it: gnt-instance activate-disks {owner.name}",
        )
    for minor in sorted(set(actual or ()) - recorded):
        report.error(
            "ENODEDRBD",
            node.name,
            f"drbd minor {minor} is in use and belongs to no instance; if nobody needs"
            f" it, release it there: drbdsetup down resource{minor}",
        )


def _has_lost_all(
    disk: objects.Disk, group: str, volumes: Mapping[str, Any] | None
) -> bool:
    """Return whether all volumes of a disk are of the listed group and missing."""
    return volumes is not None and all(
        part.startswith(group) and part not in volumes for part in _parts(disk)
    )


def _minor(disk: objects.Disk, node: objects.Node) -> int:
    """Return the minor of a mirror on one of its nodes."""
    return int(disk.logical_id[_MINOR + disk.logical_id[:2].index(node.uuid)])


def judge_generations(
    report: Report,
    nodes: Sequence[objects.Node],
    answers: Mapping[str, Mapping[str, Any]],
) -> None:
    """Name the nodes of a group whose DRBD is of another generation than most have.

    The layouts of their metadata differ, so that such nodes cannot mirror each other.

    Args:
        report: gets the errors.
        nodes: of the group.
        answers: node uuid -> answer.
    """
    by_major: dict[str, list[str]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        version = answers.get(node.uuid, {}).get(nodeverify.NV_DRBDVERSION)
        if version and node.vm_capable:
            by_major.setdefault(version.partition(".")[0], []).append(node.name)
    if not by_major:
        return
    usual = max(by_major, key=lambda major: len(by_major[major]))
    for major, names in by_major.items():
        for name in names:
            report.error_if(
                major != usual,
                "ENODEDRBDVERSION",
                name,
                f"DRBD {major} cannot mirror disks with DRBD {usual}, which"
                f" {', '.join(by_major[usual])} have; install the same kernel module",
            )


def _helper(
    report: Report, cluster: objects.Cluster, node: objects.Node, actual: str | None
) -> None:
    wanted = cluster.drbd_usermode_helper
    report.error_if(
        actual is None,
        "ENODEDRBDHELPER",
        node.name,
        "unable to read DRBD's usermode helper: is its kernel module loaded"
        " (modprobe drbd)?",
    )
    report.error_if(
        actual is not None and actual != wanted,
        "ENODEDRBDHELPER",
        node.name,
        f"DRBD's usermode helper: wanted {wanted}, found {actual or 'none'}; set it in"
        " /etc/modprobe.d: options drbd usermode_helper=" + str(wanted),
    )


_SHARED: Final = "sharedfile"
_FILE_TYPES: Final = ("file", _SHARED)
_MIB: Final = 1024 * 1024


def judge_disk_files(
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
    report.error(
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
    report.error(
        "EINSTANCEFAULTYDISK",
        name,
        f"{disk.iv_name} has {size / _MIB:g} MiB, recorded are {disk.size} MiB; to"
        f" record its real size: gnt-cluster repair-disk-sizes {name}",
        warn_only=size > disk.size * _MIB,
    )


_TEXTS: Final = {
    "unfinished": "was not finished, and nothing has written to it for an hour; remove"
    " it there",
    "foreign": "is no export; if nobody needs it, remove it there",
}


def judge_exports(
    report: Report,
    snapshot: objects.Snapshot,
    remains: Mapping[str, Mapping[str, str]],
) -> None:
    """Warn of what is in export directories beside complete exports.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        remains: node uuid -> name -> ``unfinished`` or ``foreign``; other kinds, which
            a node of a later release may report, are ignored.
    """
    for uuid in sorted(remains, key=lambda uuid: snapshot.nodes[uuid].name):
        for name, kind in sorted(remains[uuid].items()):
            report.error_if(
                kind in _TEXTS,
                "ENODEORPHANLV",
                snapshot.nodes[uuid].name,
                f"{_buildconf.EXPORT_DIR}/{name} {_TEXTS.get(kind)}",
                warn_only=True,
            )
