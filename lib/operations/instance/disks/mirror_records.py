"""Records of mirrored disks: volumes, minors, secret and port."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks as constants
from ganeti.master import config
from ganeti.model import objects
from ganeti.operations import base
from ganeti.protocols.rpc import calls

_PORT: Final = 2
_BYTES_OF_MIB: Final = 1024 * 1024


def is_mirror(disk: objects.Disk) -> bool:
    """Return whether a disk is mirrored between two nodes by DRBD."""
    return disk.dev_type in constants.DTS_DRBD


def meta_group(snapshot: objects.Snapshot, node: str, data_group: str) -> str:
    """Return the volume group of metadata: the parameter if it is set, else the data's.

    Args:
        snapshot: the configuration.
        node: uuid of the primary node, whose group's parameter counts.
        data_group: volume group of the data.
    """
    group = snapshot.nodegroups[snapshot.nodes[node].group]
    for stored in (group.diskparams, snapshot.cluster.diskparams):
        if name := (stored or {}).get("drbd", {}).get("metavg"):
            return str(name)
    return data_group


def record(
    ctx: base.Context,
    disk: objects.Disk,
    nodes: Sequence[str],
    *,
    groups: Sequence[str],
    names: Sequence[str],
) -> objects.Disk:
    """Return a disk as a mirror on two nodes, still without a port.

    Args:
        ctx: dependencies of the opcode; minors and secret are reserved for its owner.
        disk: its other fields.
        nodes: uuids of the primary and the secondary node.
        groups: volume groups of data and metadata.
        names: of both volumes.
    """
    children = tuple(
        objects.Disk(
            uuid=ctx.config.reserve_uuid(ctx.owner),
            serial_no=1,
            ctime=disk.ctime,
            mtime=disk.mtime,
            dev_type="plain",
            logical_id=(group, name),
            nodes=tuple(nodes),
            size=size,
            # `encode.disk` gives the volumes the stripes of the mirror.
            params={},
            forthcoming=disk.forthcoming,
        )
        for group, name, size in zip(
            groups, names, (disk.size, constants.DRBD_META_SIZE), strict=True
        )
    )
    minors = ctx.config.reserve_minors(ctx.owner, nodes)
    secret = ctx.config.reserve_secret(ctx.owner)
    return disk.replace(
        dev_type="drbd",
        logical_id=(*nodes, None, *minors, secret),
        nodes=tuple(nodes),
        children=children,
    )


def with_port(edit: config.Edit, disk: objects.Disk) -> objects.Disk:
    """Return a disk with a port, if it is a mirror that has none."""
    if not is_mirror(disk) or disk.logical_id[_PORT] is not None:
        return disk
    # A commit takes the port, because the record of the cluster has the free ones.
    first, second, _port, *rest = disk.logical_id
    return disk.replace(logical_id=(first, second, edit.allocate_port(), *rest))


def with_ports(
    edit: config.Edit, disks: Sequence[objects.Disk]
) -> tuple[objects.Disk, ...]:
    """Return disks with ports."""
    return tuple(with_port(edit, disk) for disk in disks)


def with_size(disk: objects.Disk, size_mib: int) -> objects.Disk:
    """Return a disk, and the data volume of a mirror, with another size."""
    if not is_mirror(disk):
        return disk.replace(size=size_mib)
    data, *others = disk.children
    children = (data.replace(size=size_mib), *others)
    return disk.replace(size=size_mib, children=children)


def parts(disk: objects.Disk) -> Iterator[objects.Disk]:
    """Yield the disk itself, or the volumes of a mirror."""
    yield from (disk.children if is_mirror(disk) else (disk,))


def reserve_again(ctx: base.Context, disk: objects.Disk) -> None:
    """Reserve the identifiers of a record that is not in the configuration."""
    if not is_mirror(disk):
        return
    # The port is taken by the commit, or recorded already; see `with_port`.
    first, second, _port, *minors, secret = disk.logical_id
    for node, minor in zip((first, second), minors, strict=True):
        ctx.config.reserve(ctx.owner, f"minor/{node}", minor)
    ctx.config.reserve(ctx.owner, "secret", secret)
    for child in disk.children:
        ctx.config.reserve(ctx.owner, "uuid", child.uuid)


def check_nodes(
    snapshot: objects.Snapshot, template: str, nodes: Sequence[str], instance: str
) -> None:
    """Refuse two nodes of a mirrored template that are one.

    Raises:
        OpPrereqError: they are; names the node.
    """
    if template in constants.DTS_INT_MIRROR and len(set(nodes)) != len(nodes):
        raise errors.refusal(
            f"instance {instance}: primary and secondary node must differ, found"
            f" {snapshot.nodes[nodes[0]].name} twice"
        )


def with_sizes(
    ctx: base.Context,
    what: str,
    node: str,
    volumes: Sequence[Mapping[str, Any]],
    mirrors: Sequence[objects.Disk],
    *,
    needs_all: bool = False,
) -> list[objects.Disk]:
    """Return mirrors to make with data volumes at least as large as those of a node.

    LVM rounds sizes up, perhaps differently on another node, and a mirror does not
    accept a volume that is smaller than the present one.

    Args:
        ctx: dependencies of the opcode.
        what: the instance, for messages.
        node: uuid of the node that has the volumes.
        volumes: their wire forms, in the order of the mirrors.
        mirrors: records to make.
        needs_all: refuse a volume whose size the node does not know; else it keeps the
            recorded one.

    Raises:
        OpExecError: the node does not report the sizes.
    """
    rows = ctx.rpc.call_node(node, calls.blockdev_getdimensions(volumes)).unwrap(
        f"{what}: cannot get the sizes of its volumes"
    )
    if len(rows) != len(mirrors) or (needs_all and not all(rows)):
        raise errors.OpExecError(
            f"{what}: node {ctx.snapshot.nodes[node].name} does not report the sizes of"
            f" its {len(mirrors)} volumes"
        )
    sized = []
    for disk, row in zip(mirrors, rows, strict=True):
        data, *others = disk.children
        actual = -(-int(row.in_bytes) // _BYTES_OF_MIB) if row else 0
        data = data.replace(size=max(data.size, actual))
        sized.append(disk.replace(children=(data, *others)))
    return sized
