"""Disks of an instance on its nodes: create, assemble, shut down, remove, wipe."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.master import config
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import allocation, base, progress
from ganeti.operations.instance import common
from ganeti.operations.instance.disks import mirror_records, mirror_states
from ganeti.protocols.rpc import Request, Result, calls, encode

#: Calls without an answer in succession, after which a node is not called any more. A
#: node daemon that is restarted loses one call.
_ENOUGH: Final = 2


class _DiskCalls:
    """Calls of one procedure for each disk on each node; a silent node gets few."""

    def __init__(self, ctx: base.Context) -> None:
        self._ctx = ctx
        self._unanswered: Counter[str] = Counter()
        self._last: dict[str, Result] = {}

    def on(self, node: str, request: Request[Any]) -> Result:
        """Call a node; if it has been silent for long, return its last failure."""
        if self._unanswered[node] >= _ENOUGH:
            return self._last[node]
        result = self._ctx.rpc.call_node(node, request)
        if result.is_silent:
            self._unanswered[node] += 1
            self._last[node] = result
        else:
            # Unlike a dict, a Counter lets a missing key be deleted.
            del self._unanswered[node]
        return result


#: Largest piece wiped by one call, in MiB, and largest share of the disk: Ganeti's
#: MAX_WIPE_CHUNK and MIN_WIPE_CHUNK_PERCENT.
WIPE_CHUNK_MIB: Final = 1024
WIPE_CHUNK_SHARE: Final = 0.1
#: Seconds between progress lines of a wipe.
WIPE_REPORT_S: Final = 60.0


#: Templates whose storage distinguishes writing by one node alone and by several.
_OPENED: Final = frozenset({"ext"})


def nodes_of(disk: objects.Disk, instance: objects.Instance) -> tuple[str, ...]:
    """Return the uuids of the nodes that hold a disk, the primary one last."""
    # `_assemble_disk` relies on this order, and `shutdown` on its reverse.
    others = tuple(n for n in disk.nodes if n != instance.primary_node)
    if disk.dev_type == "drbd":
        return (*others, instance.primary_node)
    return (instance.primary_node,)


def label(index: int) -> str:
    """Return a disk's name for users."""
    return f"disk/{index}"


def _called(disk: objects.Disk, index: int) -> str:
    """Return a disk's recorded name, else its position in the list."""
    return disk.iv_name or label(index)


def place(disk: objects.Disk) -> str:
    """Return the location of a disk on its nodes, for messages."""
    if mirror_records.is_mirror(disk):
        # Its own location has the shared secret.
        return ", ".join(place(child) for child in disk.children)
    return "/".join(str(part) for part in disk.logical_id[1:]) or disk.uuid


def create_all(
    ctx: base.Context, instance: objects.Instance, disks: Sequence[objects.Disk]
) -> None:
    """Create disks on all their nodes; undo everything if one fails.

    Raises:
        OpExecError: a node refused; created disks were removed again.
    """
    made: list[tuple[int, str]] = []
    directories = sorted(_directories(instance, disks))
    _note(ctx, instance, disks, directories)
    for directory, node in directories:
        result = ctx.rpc.call_node(node, calls.file_storage_dir_create(directory))
        # The node may have made it; a sweep of the note finds out.
        if result.is_lost:
            ctx.config.disk_notes.leave(ctx.owner)
        result.unwrap(f"instance {instance.name}: cannot create directory {directory}")
    for index, disk in enumerate(disks):
        nodes = nodes_of(disk, instance)
        for node in nodes:
            # Logged before the call: if the daemon is killed, the log names the
            # disk that has no record.
            ctx.log.message(
                f"* creating {_called(disk, index)} on {ctx.node_name(node)}:"
                f" {place(disk)}"
            )
        results = _create_on(ctx, instance, disk, nodes)
        made += [(index, node) for node in nodes if not results[node].failed]
        failed = [results[node] for node in nodes if results[node].failed]
        if failed:
            is_undone = _undo_create(ctx, instance, disks, made)
            # A disk whose creation had no answer may exist: only the note names it.
            if any(result.is_lost for result in failed) or not is_undone:
                ctx.config.disk_notes.leave(ctx.owner)
            what = f"instance {instance.name}: cannot create {_called(disk, index)}"
            raise errors.OpExecError(failed[0].describe(what))


def _create_on(
    ctx: base.Context,
    instance: objects.Instance,
    disk: objects.Disk,
    nodes: Sequence[str],
) -> Mapping[str, Result]:
    """Create a disk on nodes at the same time; return their answers."""
    wire = encode.disk(ctx.snapshot, disk, instance)

    def creation(node: str) -> Request[Any]:
        return calls.blockdev_create(
            *(wire, disk.size, instance.name, node == instance.primary_node),
            f"originstname+{instance.name}",
            params.has_exclusive_storage(ctx.snapshot, node),
        )

    return ctx.rpc.call_nodes(nodes, creation)


def _note(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    directories: Sequence[tuple[str, str]],
) -> None:
    """Make durable which disks are about to be made: their records come later."""
    made = [
        config.MadeDisk(disk, nodes)
        for disk in disks
        if (nodes := _without_record(ctx.snapshot, disk, instance))
    ]
    if made:
        note = config.DiskNote(instance.name, tuple(made), tuple(directories))
        ctx.config.disk_notes.add(ctx.owner, note)


def _without_record(
    snapshot: objects.Snapshot, disk: objects.Disk, instance: objects.Instance
) -> tuple[str, ...]:
    """Return the nodes on which a disk has no record, among its future ones."""
    nodes = nodes_of(disk, instance)
    recorded = snapshot.disks.get(disk.uuid)
    if recorded is None or recorded.forthcoming:
        return nodes
    if disk.dev_type in disk_constants.DTS_LVM and recorded.nodes:
        # One that moves to other nodes.
        return tuple(node for node in nodes if node not in recorded.nodes)
    return ()


def _directories(
    instance: objects.Instance, disks: Sequence[objects.Disk]
) -> set[tuple[str, str]]:
    return {
        (disk.logical_id[1].rpartition("/")[0], node)
        for disk in disks
        if disk.dev_type in ("file", "sharedfile")
        for node in nodes_of(disk, instance)
    }


def _undo_create(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    made: Sequence[tuple[int, str]],
) -> bool:
    """Remove the disks that were made; return whether all calls succeeded."""
    is_undone = True
    for index, node in reversed(made):
        disk = encode.disk(ctx.snapshot, disks[index], instance)
        result = ctx.rpc.call_node(node, calls.blockdev_remove(disk))
        what = f"cannot undo the creation of {_called(disks[index], index)}"
        if ctx.warn_failed(result, what):
            is_undone = False
    # In this order, so that the directories are removed in any case.
    return _remove_directories(ctx, instance, disks, gone=frozenset()) and is_undone


def _remove_directories(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    *,
    gone: frozenset[str],
) -> bool:
    """Remove the directories of disk files, except those that other disks use.

    Returns whether all calls succeeded; a missing directory is no failure.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        disks: disks whose directories are removed.
        gone: uuids of recorded disks that no longer exist.
    """
    kept = _recorded_directories(ctx.snapshot, instance, gone)
    fine = True
    for directory, node in sorted(_directories(instance, disks) - kept):
        result = ctx.rpc.call_node(node, calls.file_storage_dir_remove(directory))
        what = f"cannot remove directory {directory}"
        if ctx.warn_failed(result, what) and not result.offline:
            fine = False
    return fine


def note_removal(
    ctx: base.Context, instance: objects.Instance, disks: Sequence[objects.Disk]
) -> None:
    """Make durable which disks are to be removed after their records.

    If the master daemon ends in between, the next one removes them.
    """
    made = tuple(config.MadeDisk(disk, nodes_of(disk, instance)) for disk in disks)
    if made:
        directories = tuple(sorted(_directories(instance, disks)))
        note = config.DiskNote(instance.name, made, directories)
        ctx.config.disk_notes.add(ctx.owner, note)


def announce_removal(ctx: base.Context, disks: Sequence[objects.Disk]) -> None:
    """Log disks whose records are removed first, in case the disks are left behind."""
    for disk in disks:
        ctx.log.message(f"* going to remove {disk.iv_name}: {place(disk)}")


def _recorded_directories(
    snapshot: objects.Snapshot, instance: objects.Instance, gone: frozenset[str]
) -> set[tuple[str, str]]:
    """Return the directories of an instance, and of another one that has its name."""
    directories = set()
    for uuid in {instance.uuid, snapshot.uuid_of("instances", instance.name)}:
        if (recorded := snapshot.instances.get(uuid or "")) is not None:
            others = [
                snapshot.disks[disk]
                for disk in recorded.disks
                if disk not in gone and not snapshot.disks[disk].forthcoming
            ]
            directories |= _directories(recorded, others)
    return directories


def remove_all(
    ctx: base.Context, instance: objects.Instance, disks: Sequence[objects.Disk]
) -> bool:
    """Remove disks and their directories; return whether all calls succeeded.

    Offline nodes, which do not count, and failures are logged as warnings.
    """
    fine = True
    patient = _DiskCalls(ctx)
    for index, disk in enumerate(disks):
        for node in nodes_of(disk, instance):
            ctx.log.message(
                f"* removing {_called(disk, index)} on {ctx.node_name(node)}:"
                f" {place(disk)}"
            )
            wire = encode.disk(ctx.snapshot, disk, instance)
            result = patient.on(node, calls.blockdev_remove(wire))
            what = f"cannot remove {_called(disk, index)} of instance {instance.name}"
            if ctx.warn_failed(result, what) and not result.offline:
                fine = False
    # The directory of a disk that was not removed is still in use.
    if disks and fine:
        gone = frozenset(disk.uuid for disk in disks)
        fine = _remove_directories(ctx, instance, disks, gone=gone)
    if not fine:
        # Disks without a record, such as those of a creation that failed.
        ctx.config.disk_notes.leave(ctx.owner)
    return fine


@contextlib.contextmanager
def removed_on_failure(
    ctx: base.Context, instance: objects.Instance, disks: Sequence[objects.Disk]
) -> Iterator[None]:
    """Remove new disks if a step fails.

    If their records may be durable nevertheless, the disks stay, and the next master
    daemon decides by their notes.
    """
    try:
        yield
    except errors.GenericError as err:
        if errors.is_outcome_unknown(err):
            ctx.config.disk_notes.hold(ctx.owner)
            for index, disk in enumerate(disks):
                ctx.log.warn(
                    f"{_called(disk, index)} stays: {place(disk)}; the next start of"
                    " the master daemon removes it if it has no record"
                )
            raise
        try:
            remove_all(ctx, instance, disks)
        except errors.GenericError:
            ctx.config.disk_notes.leave(ctx.owner)
            raise
        raise


def assemble(
    ctx: base.Context,
    instance: objects.Instance,
    *,
    disks: Sequence[objects.Disk] | None = None,
    ignore_secondaries: bool = False,
    ignore_size: bool = False,
    stays_active: bool = False,
) -> list[tuple[str, str, str | None]]:
    """Make disks usable on the primary node and mark them active.

    First on all nodes as secondary (mirrored templates only), then on the primary.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        disks: the disks, None for all.
        ignore_secondaries: accept that secondary nodes fail.
        ignore_size: accept other sizes than the recorded ones.
        stays_active: shut nothing down after a failure, as a guest may use the disks.

    Returns:
        ``(node name, disk name, device path)`` per disk.

    Raises:
        OpExecError: a disk could not be assembled; all were shut down again, unless
            they stay active.
    """
    everything = disks is None
    chosen = ctx.snapshot.instance_disks(instance) if disks is None else tuple(disks)
    if everything:
        instance = common.set_instance(ctx, instance.uuid, disks_active=True)
    rows: list[tuple[str, str, str | None]] = []
    apart: set[str] = set()
    try:
        for index, disk in enumerate(chosen):
            sized = disk.replace(size=0) if ignore_size else disk
            device = _assemble_disk(
                *(ctx, instance, sized, index, apart),
                ignore_secondaries=ignore_secondaries,
            )
            node = ctx.node_name(instance.primary_node)
            rows.append((node, disk.iv_name, device))
        opened = open_external(ctx, instance, chosen, instance.primary_node)
        if opened is not None:
            opened.unwrap(f"instance {instance.name}: cannot open its disks")
    except errors.OpExecError:
        if not stays_active:
            shutdown(ctx, instance, disks=chosen, ignore_primary=True, mark=False)
            if everything:
                common.set_instance(ctx, instance.uuid, disks_active=False)
        raise
    return rows


def _assemble_disk(
    ctx: base.Context,
    instance: objects.Instance,
    disk: objects.Disk,
    index: int,
    apart: set[str],
    *,
    ignore_secondaries: bool,
) -> str | None:
    """Make a disk usable on the primary node; return its device path.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disk.
        disk: the disk.
        index: its position.
        apart: nodes that the primary one has not reached, as an earlier disk has shown;
            it does not wait for them again. Extended.
        ignore_secondaries: accept that secondary nodes fail.
    """
    what = f"cannot assemble {_called(disk, index)}"
    # Secondary nodes first: the primary node waits for the connection with its peer.
    *others, primary = nodes_of(disk, instance)
    is_peer_away = False
    for node in others:
        result = _assemble_one(ctx, instance, disk, node, index)
        if result.failed:
            is_peer_away = True
            if not (ignore_secondaries or result.offline):
                result.unwrap(f"instance {instance.name}: {what}")
            ctx.warn_failed(result, what)
    args = (ctx, instance, disk, primary, index)
    # An earlier disk has waited in vain for this peer, so this one is not opened yet.
    is_known = not is_peer_away and not apart.isdisjoint(others)
    result = _assemble_one(*args, is_peer_away=is_peer_away, opens=not is_known)
    # A node refuses to become primary while its peer, which may have newer data, is
    # silent (`DrbdDevice.become_primary`). Any other silence is a failure of its own.
    is_refused = bool(others) and result.failed and result.is_answered
    is_waiting = is_refused and not is_peer_away and not is_known
    if is_waiting and mirror_states.is_waiting(ctx, instance, disk):
        is_known = True
        apart.update(others)
    elif is_known:
        result.unwrap(f"instance {instance.name}: {what}")
    if is_known:
        if not ignore_secondaries:
            _require_newest(ctx, instance, disk, index)
        ctx.log.warn(
            f"{_called(disk, index)} of instance {instance.name}: its two nodes cannot"
            f" reach each other; going on with {ctx.node_name(primary)} alone"
        )
        # The mark ends the wait for the peer: the data of this node is used alone.
        result = _assemble_one(*args, is_peer_away=True)
    payload = result.unwrap(f"instance {instance.name}: {what}")
    return payload[0] if payload else None


def open_external(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    node: str,
    *,
    exclusive: bool = True,
) -> Result | None:
    """Allow writing to external storage on a node; other templates need no call.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        disks: active disks; those of other templates are left out.
        node: uuid of the node.
        exclusive: whether no other node writes, too.

    Returns:
        The answer, None without a call.
    """
    wires = [
        encode.disk(ctx.snapshot, disk, instance)
        for disk in disks
        if disk.dev_type in _OPENED
    ]
    if not wires:
        return None
    # Without a name, the links that the activation made stay.
    return ctx.rpc.call_node(node, calls.blockdev_open("", wires, exclusive))


def _assemble_one(
    ctx: base.Context,
    instance: objects.Instance,
    disk: objects.Disk,
    node: str,
    index: int,
    *,
    is_peer_away: bool = False,
    opens: bool = True,
) -> Any:
    """Activate a disk on a node; the primary one may write to it if it ``opens`` it."""
    return ctx.rpc.call_node(
        node,
        calls.blockdev_assemble(
            encode.disk(ctx.snapshot, disk, instance, is_peer_away=is_peer_away),
            encode.instance(ctx.snapshot, instance),
            opens and node == instance.primary_node,
            index,
        ),
    )


def _require_newest(
    ctx: base.Context, instance: objects.Instance, disk: objects.Disk, index: int
) -> None:
    """Refuse to go on without the other node if its data is newer.

    The primary node waits until both copies are compared. If the nodes cannot reach
    each other, although both answer the master, their reports are compared here.

    Raises:
        OpExecError: the data of the other node is newer, or in use.
    """
    problem = mirror_states.find_newer(ctx, instance, [(index, disk)])
    if problem:
        raise errors.OpExecError(problem)


def shutdown(
    ctx: base.Context,
    instance: objects.Instance,
    *,
    disks: Sequence[objects.Disk] | None = None,
    ignore_primary: bool = False,
    mark: bool = True,
) -> bool:
    """Shut disks down on all nodes; return whether no failure counts.

    Failures are logged. Failures on the primary count unless ``ignore_primary``, those
    on secondaries unless the node is offline.
    """
    chosen = ctx.snapshot.instance_disks(instance) if disks is None else tuple(disks)
    fine = True
    patient = _DiskCalls(ctx)
    for index, disk in enumerate(chosen):
        for node in reversed(nodes_of(disk, instance)):
            wire = encode.disk(ctx.snapshot, disk, instance)
            result = patient.on(node, calls.blockdev_shutdown(wire))
            what = (
                f"cannot shut down {_called(disk, index)} of instance {instance.name}"
            )
            if ctx.warn_failed(result, what):
                is_primary = node == instance.primary_node
                excused = ignore_primary if is_primary else result.offline
                fine = fine and excused
    if mark and fine and disks is None:
        common.set_instance(ctx, instance.uuid, disks_active=False)
    return fine


def wipe(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[tuple[int, objects.Disk, int]],
    *,
    save: Callable[[int, int], None] = lambda _index, _offset: None,
) -> None:
    """Overwrite disks from an offset, in pieces, with progress lines.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        disks: (index, disk, first MiB).
        save: called before each piece with the index of the disk and the offset in
            MiB; the wipe can be continued there, since a repeated piece does no harm.

    Raises:
        OpExecError: the primary node failed.
    """
    allocation.share_nodes(ctx)
    node = instance.primary_node
    for index, disk, start in disks:
        chunk = max(1, int(min(WIPE_CHUNK_MIB, disk.size * WIPE_CHUNK_SHARE)))
        ctx.log.message(f"* Wiping {label(index)}")
        offset, last = start, ctx.clock.monotonic()
        shown = progress.Progress(ctx, f"wiping {label(index)}", disk.size - start)
        while offset < disk.size:
            piece = min(chunk, disk.size - offset)
            # Before the piece: one that is repeated does no harm, one left out shows
            # old data.
            save(index, offset)
            wire = encode.disk(ctx.snapshot, disk, instance)
            ctx.rpc.call_node(node, calls.blockdev_wipe(wire, offset, piece)).unwrap(
                f"instance {instance.name}: cannot wipe {label(index)}"
            )
            offset += piece
            shown.at(offset - start)
            now = ctx.clock.monotonic()
            if now - last >= WIPE_REPORT_S:
                share = 100.0 * offset / disk.size
                ctx.log.message(f" - done: {share:.1f}%")
                last = now


def create_on_nodes_and_wipe(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    *,
    save: Callable[[int, int], None] = lambda _index, _offset: None,
) -> None:
    """Create disks and wipe them if so configured; undo both on failure.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        disks: the disks.
        save: see `wipe`.
    """
    create_all(ctx, instance, disks)
    if ctx.snapshot.cluster.prealloc_wipe_disks:
        wipe_new(ctx, instance, disks, save=save)


def wipe_new(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    *,
    first: int = 0,
    offset_mib: int = 0,
    save: Callable[[int, int], None] = lambda _index, _offset: None,
) -> None:
    """Wipe new disks without a record, or the rest of them; remove all on failure.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        disks: all new disks.
        first: index of the disk to begin with.
        offset_mib: where to begin on that disk.
        save: see `wipe`.
    """
    rest = [
        (index, disk, offset_mib if index == first else 0)
        for index, disk in enumerate(disks)
        if index >= first
    ]
    with removed_on_failure(ctx, instance, disks):
        # With named disks, no mark is set: the instance may have no record.
        assemble(ctx, instance, disks=disks)
        try:
            wipe(ctx, instance, rest, save=save)
        finally:
            shutdown(ctx, instance, disks=disks, mark=False)
