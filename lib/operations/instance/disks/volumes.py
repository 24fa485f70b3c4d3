"""Disks in volume groups and adopted devices: checks with the nodes, and adoption."""

from collections.abc import Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.base.text import messages
from ganeti.base.text.units import exact_mib
from ganeti.decisions.verify import mirrors
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import capacity
from ganeti.operations.instance.disks import mirror_records
from ganeti.protocols.rpc import Request, calls, encode
from ganeti.protocols.rpc.answers import BlockDevice, NodeInfo

_DTS_EXCL_STORAGE: Final = ("plain",)

_MIB: Final = 1024 * 1024


def check_exclusive(
    snapshot: objects.Snapshot, node: str, template: str, instance: str
) -> None:
    """Refuse a template that cannot be used on a node with exclusive storage.

    Raises:
        OpPrereqError: it cannot; names the template.
    """
    allowed = (*_DTS_EXCL_STORAGE, "diskless")
    if template not in allowed and params.has_exclusive_storage(snapshot, node):
        raise errors.OpPrereqError(
            f"instance {instance}: disk template {template} is not possible with the"
            f" exclusive storage of node {snapshot.nodes[node].name}, only"
            f" {', '.join(_DTS_EXCL_STORAGE)}",
            ecodes.ECODE_STATE,
        )


def require_space(
    ctx: base.Context,
    nodes: Sequence[str],
    disks: Sequence[objects.Disk],
    instance: str,
) -> None:
    """Refuse disks for which the volume groups of a node have too little space.

    All nodes are asked at the same time. Space that other reserved disks hold does not
    count as free.

    Raises:
        OpPrereqError: wanted and free space, or why the free space is unknown.
    """
    wanted: dict[str, int] = {}
    for part in (part for disk in disks for part in mirror_records.parts(disk)):
        if part.dev_type == "plain":
            group = part.logical_id[0]
            wanted[group] = wanted.get(group, 0) + part.size
    if not wanted:
        return
    # Disks that are reserved use their own reservation.
    own = {disk.uuid for disk in disks}

    def question(node: str) -> Request[NodeInfo]:
        exclusive = params.has_exclusive_storage(ctx.snapshot, node)
        return calls.node_info([("lvm-vg", group, [exclusive]) for group in wanted], [])

    answers = ctx.rpc.call_nodes(nodes, question)
    for node in nodes:
        name = ctx.snapshot.nodes[node].name
        info = answers[node].require(
            f"cannot get the free space of node {name}", ecodes.ECODE_ENVIRON
        )
        # The answer has the order of the question.
        for (group, size), report in zip(
            wanted.items(), info.storage or (), strict=True
        ):
            free = report.storage_free if report else None
            if not isinstance(free, int):
                raise errors.OpPrereqError(
                    f"instance {instance}: volume group {group} is missing on node"
                    f" {name}, or cannot be read there",
                    ecodes.ECODE_ENVIRON,
                )
            held = capacity.volumes(ctx.snapshot, node, group, besides=own)
            if free - held.mib < size:
                raise errors.OpPrereqError(
                    f"instance {instance}: needs {exact_mib(size)} in volume group"
                    f" {group} of node {name}, which has {exact_mib(free)}"
                    f" free{held.text()}",
                    ecodes.ECODE_NORES,
                )


def adopted(
    ctx: base.Context,
    node: str,
    disks: Sequence[objects.Disk],
    sources: Sequence[str],
    instance: str,
) -> tuple[objects.Disk, ...]:
    """Return the records of adopted disks with their real sizes.

    Args:
        ctx: dependencies of the opcode.
        node: uuid of the primary node.
        disks: their future records.
        sources: name of the volume, or path of the device, that each one adopts.
        instance: its name, for messages.

    Raises:
        OpPrereqError: a source is missing, in use, or adopted twice.
    """
    what = [
        f"{disk.logical_id[0]}/{source}"
        if disk.dev_type == "plain"
        else disk.logical_id[1]
        for disk, source in zip(disks, sources, strict=True)
    ]
    for source in messages.repeated(what):
        raise errors.OpPrereqError(
            f"instance {instance}: {source} is adopted twice",
            ecodes.ECODE_NOTUNIQUE,
        )
    plain = all(disk.dev_type == "plain" for disk in disks)
    if not plain:
        _reserve(ctx, what, instance)
    _refuse_used(ctx.snapshot, node, what, instance)
    sizes = (_volume_sizes if plain else _device_sizes)(ctx, node, what, instance)
    if not plain:
        _refuse_aliases(ctx, node, what, instance)
    return tuple(
        disk.replace(size=sizes[source])
        for disk, source in zip(disks, what, strict=True)
    )


def _reserve(ctx: base.Context, devices: Sequence[str], instance: str) -> None:
    """Reserve devices until they are recorded; other nodes may have them, too."""
    for device in devices:
        try:
            ctx.config.reserve(ctx.owner, "device", device)
        except errors.ReservationError as err:
            raise errors.OpPrereqError(
                f"instance {instance}: {err.args[0]}", ecodes.ECODE_NOTUNIQUE
            ) from err


def _refuse_used(
    snapshot: objects.Snapshot, node: str, sources: Sequence[str], instance: str
) -> None:
    used = {
        "/".join(part.logical_id[:2])
        if part.dev_type == "plain"
        else part.logical_id[1]
        for disk in snapshot.disks.values()
        for part in (disk, *disk.children)
        if part.dev_type == "blockdev"
        # A volume of this name on another node is another one; a device may be shared.
        or (part.dev_type == "plain" and node in (part.nodes or disk.nodes))
    }
    for source in sources:
        if source in used:
            raise errors.OpPrereqError(
                f"instance {instance}: {source} is a disk of this cluster already",
                ecodes.ECODE_NOTUNIQUE,
            )


def _refuse_aliases(
    ctx: base.Context, node: str, sources: Sequence[str], instance: str
) -> None:
    """Refuse paths of one device: others of this job, of disks, or of running jobs.

    The node that is to use them compares: it reports the kernel's numbers of a device,
    which all paths of the device share. The paths are reserved before, so of two jobs
    at the same time at least one sees the other.

    Raises:
        OpPrereqError: names both paths.
    """
    # In this order: a job records its devices before it releases them.
    reserved = {
        str(path): f"reserved by {owner}"
        for path, owner in ctx.config.reserved("device").items()
        if owner != ctx.owner
    }
    recorded = {
        str(disk.logical_id[1]): "a disk of this cluster already"
        for disk in ctx.snapshot.disks.values()
        if disk.dev_type == "blockdev"
    }
    others = recorded | reserved
    paths = [*sources, *sorted(others)]
    if len(paths) < 2:
        return
    seen: dict[tuple[int, int], str] = {}
    numbers = _numbers(ctx, node, paths)
    # Those of others first, so that the error names a path of this request.
    for path in reversed(paths):
        same = seen.setdefault(numbers[path], path) if path in numbers else path
        if same != path:
            raise errors.OpPrereqError(
                f"instance {instance}: {path} is the same device on node"
                f" {ctx.snapshot.nodes[node].name} as {same}, which is"
                f" {others.get(same, 'adopted, too')}",
                ecodes.ECODE_NOTUNIQUE,
            )


def _numbers(
    ctx: base.Context, node: str, paths: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """Return the kernel's numbers of devices, by path; those of missing ones lack."""
    wires = [encode.disk(ctx.snapshot, _device(path)) for path in paths]
    rows = ctx.rpc.call_node(node, calls.blockdev_getmirrorstatus_multi(wires)).require(
        f"cannot compare devices of node {ctx.snapshot.nodes[node].name}",
        ecodes.ECODE_ENVIRON,
    )
    numbers = {}
    for path, (is_known, status) in zip(paths, rows, strict=False):
        if is_known and isinstance(status, BlockDevice):
            pair = status.major, status.minor
            if isinstance(pair[0], int) and isinstance(pair[1], int):
                numbers[path] = (pair[0], pair[1])
    return numbers


def _device(path: str) -> objects.Disk:
    """Return the record of a device that is asked about."""
    return objects.Disk(
        uuid=path,
        dev_type="blockdev",
        logical_id=("manual", path),
        size=0,
        serial_no=1,
    )


def _volume_sizes(
    ctx: base.Context, node: str, sources: Sequence[str], instance: str
) -> dict[str, int]:
    name = ctx.snapshot.nodes[node].name
    groups = sorted({source.partition("/")[0] for source in sources})
    rows = ctx.rpc.call_node(node, calls.lv_list(groups)).require(
        f"cannot list the volumes of node {name}", ecodes.ECODE_ENVIRON
    )
    if missing := [source for source in sources if source not in rows]:
        raise errors.refusal(
            f"instance {instance}: node {name} has no volume {', '.join(missing)}"
        )
    if busy := [source for source in sources if rows[source].is_open]:
        raise errors.OpPrereqError(
            f"instance {instance}: in use on node {name}: {', '.join(busy)}",
            ecodes.ECODE_STATE,
        )
    return {source: int(float(rows[source].size)) for source in sources}


def _device_sizes(
    ctx: base.Context, node: str, sources: Sequence[str], instance: str
) -> dict[str, int]:
    root = disk_constants.ADOPTABLE_BLOCKDEV_ROOT
    if wrong := [source for source in sources if not source.startswith(root)]:
        raise errors.refusal(
            f"instance {instance}: only devices below {root} are adopted, found"
            f" {', '.join(wrong)}"
        )
    name = ctx.snapshot.nodes[node].name
    sizes = ctx.rpc.call_node(node, calls.bdev_sizes(list(sources))).require(
        f"cannot get the sizes of devices of node {name}", ecodes.ECODE_ENVIRON
    )
    if missing := [source for source in sources if not sizes.get(source)]:
        raise errors.refusal(
            f"instance {instance}: node {name} has no device {', '.join(missing)}"
        )
    return {source: int(sizes[source]) for source in sources}


def adopt(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    sources: Sequence[str],
) -> None:
    """Give adopted volumes the names of their records; adopted devices keep theirs.

    Raises:
        OpExecError: a volume could not be renamed; all have their old names again.
    """
    renames = []
    for disk, source in zip(disks, sources, strict=True):
        if disk.dev_type == "plain":
            present = disk.replace(logical_id=(disk.logical_id[0], source))
            renames.append(
                (encode.disk(ctx.snapshot, present, instance), disk.logical_id)
            )
    if not renames:
        return
    result = ctx.rpc.call_node(
        instance.primary_node,
        calls.blockdev_rename(renames),
    )
    if result.failed:
        # The node tries all of them, so some may have their new names.
        release(ctx, instance, disks, sources)
    result.unwrap(f"instance {instance.name}: cannot adopt its disks")
    set_owner(ctx, instance, disks)


def release(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    sources: Sequence[str],
) -> None:
    """Give adopted volumes their old names, as far as they have new ones.

    Without a record, a volume that keeps its new name looks like a forgotten one. So a
    warning names it, also if the node did not say which name it has.
    """
    for disk, source in zip(disks, sources, strict=True):
        if disk.dev_type != "plain":
            continue
        wire = encode.disk(ctx.snapshot, disk, instance)
        status = ctx.rpc.call_node(instance.primary_node, calls.blockdev_find(wire))
        volume = disk.logical_id[1]
        if ctx.warn_failed(
            status,
            f"volume {volume} may not have its name {source} back; it has the content",
        ):
            continue
        if status.payload is None:
            continue
        back = [(wire, [disk.logical_id[0], source])]
        result = ctx.rpc.call_node(instance.primary_node, calls.blockdev_rename(back))
        ctx.warn_failed(
            result,
            f"volume {volume} did not get its name {source} back",
        )


def set_owner(
    ctx: base.Context, instance: objects.Instance, disks: Sequence[objects.Disk]
) -> None:
    """Tag volumes with the name of their instance; failures are warnings."""
    for disk in disks:
        if disk.dev_type not in disk_constants.DTS_LVM:
            continue
        wire = encode.disk(ctx.snapshot, disk, instance)
        text = f"originstname+{instance.name}"
        place = "/".join(str(part.logical_id[1]) for part in mirror_records.parts(disk))
        for node in disk.nodes or (instance.primary_node,):
            result = ctx.rpc.call_node(node, calls.blockdev_setinfo(wire, text))
            ctx.warn_failed(
                result, f"volume {place} does not carry the name of its instance"
            )


class PresentGroups:
    """Asks each node once, and only if the answer is needed."""

    def __init__(self, ctx: base.Context) -> None:
        self._ctx = ctx
        self._known: dict[str, frozenset[str] | None] = {}

    def lacks(self, node: str, disk: objects.Disk) -> bool:
        """Return whether a node is known to lack a volume group of a mirror."""
        if node not in self._known:
            answer = self._ctx.rpc.call_node(node, calls.vg_list())
            present = None if answer.failed else frozenset(answer.payload)
            self._known[node] = present
        return mirrors.lacks_group(self._known[node], disk)
