"""Mirrored disks of an instance: their states, synchronisation and connection."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.decisions.verify import mirrors
from ganeti.model import objects
from ganeti.operations import base, progress
from ganeti.operations.instance.disks import mirror_records
from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.answers import BlockDevice, DeviceRow

#: Longest pause between two looks at a synchronisation, seconds.
_POLL_S: Final = 5.0
_FIRST_POLL_S: Final = 0.2
#: Seconds between two lines of the job log.
_REPORT_S: Final = 60.0
#: How often, and how long, a silent node is tried again.
_SILENT_TRIES: Final = 10
_SILENT_S: Final = 6.0
#: The same for disks that are neither complete nor being copied. While a node waits for
#: the other one, DRBD tries to connect every 10 s (connect-int); the first two attempts
#: may be missed.
_DEGRADED_TRIES: Final = 10
_CONNECTING_TRIES: Final = 35
_DEGRADED_S: Final = 1.0
_STANDALONE: Final = "StandAlone"
_CONNECTING: Final = ("WFConnection", "WFReportParams", "Unconnected")


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of one disk on one node.

    Attributes:
        is_active: whether the node has the device.
        is_degraded: whether not both nodes have all data.
        percent: part of a running synchronisation that is done, None without one.
        left_s: its estimated time in seconds.
        ldisk: status of the node's own data, see
            `ganeti.base.constants.disks.LDS_NAMES`.
        is_standalone: whether the node does not try to connect.
        is_connecting: whether it waits for the other one, or greets it.
        is_connected: whether the nodes exchange data, so that none is newer there.
        row: the answer of the node.
    """

    is_active: bool
    is_degraded: bool = False
    percent: float | None = None
    left_s: float | None = None
    ldisk: int = disk_constants.LDS_OK
    is_standalone: bool = False
    is_connecting: bool = False
    is_connected: bool = False
    row: DeviceRow | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the node's own data is complete."""
        return self.is_active and self.ldisk == disk_constants.LDS_OK


def of(
    snapshot: objects.Snapshot, instance: objects.Instance
) -> list[tuple[int, objects.Disk]]:
    """Return index and record of the mirrored disks of an instance."""
    disks = snapshot.instance_disks(instance)
    return [(i, disk) for i, disk in enumerate(disks) if mirror_records.is_mirror(disk)]


def _status(row: DeviceRow) -> Status | str:
    """Return a row of an answer as a status, or why there is none."""
    is_known, value = row
    if not is_known:
        return str(value)
    if not isinstance(value, BlockDevice) or not value.dev_path:
        return Status(is_active=False, is_degraded=True, row=row)
    connection = (value.mirror or {}).get("connection")
    percent, left_s = value.sync_percent, value.estimated_time
    return Status(
        is_active=True,
        is_degraded=bool(value.is_degraded),
        percent=None if percent is None else float(percent),
        left_s=None if left_s is None else float(left_s),
        ldisk=value.ldisk_status or disk_constants.LDS_OK,
        is_standalone=connection == _STANDALONE,
        is_connecting=connection in _CONNECTING,
        is_connected=connection in mirrors.TALKING,
        row=row,
    )


def statuses(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    node: str,
) -> list[Status | str] | None:
    """Return the states of disks on a node, texts for unknown ones.

    None means that the node does not answer.
    """
    wires = [encode.disk(ctx.snapshot, disk, instance) for disk in disks]
    return _asked(ctx, wires, node)


def _asked(
    ctx: base.Context, wires: Sequence[encode.Wire], node: str
) -> list[Status | str] | None:
    """Return the states of disks in the form of node calls, see `statuses`."""
    answer = ctx.rpc.call_node(node, calls.blockdev_getmirrorstatus_multi(wires))
    # Rows belong to disks by their order, so an incomplete answer is useless.
    if answer.failed or len(answer.payload) != len(wires):
        return None
    return [_status(row) for row in answer.payload]


def require_complete(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[tuple[int, objects.Disk]],
    node: str,
    action: str,
    *,
    is_peer_away: bool = False,
) -> None:
    """Refuse an action for which a node must have complete data of active disks.

    A node that is not connected has what was there when the connection ended. That is
    all there is if the other node is away, and too little if it has gone on writing.
    A connected one has all, also while the other one has lost its disk.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        disks: index and record of mirrored disks.
        node: UUID of the node that must have the data.
        action: for messages.
        is_peer_away: the other node is marked offline.

    Raises:
        OpPrereqError: it lacks some, or does not answer.
    """
    if not disks:
        return
    name = ctx.snapshot.nodes[node].name
    known = statuses(ctx, instance, [disk for _index, disk in disks], node)
    if known is None:
        raise errors.OpPrereqError(
            f"instance {instance.name}: cannot {action}: node {name} does not report"
            " the state of its disks",
            ecodes.ECODE_ENVIRON,
        )
    for (index, _disk), status in zip(disks, known, strict=True):
        if isinstance(status, str):
            problem = status
        elif not status.is_active:
            problem = (
                f"is not active there; gnt-instance activate-disks {instance.name}"
            )
        elif not status.is_complete:
            problem = "is not up to date there; wait until it is synchronised"
        elif status.is_degraded and not (status.is_connected or is_peer_away):
            problem = (
                "may be old there, since it is not connected with the other node; run"
                f" gnt-instance activate-disks {instance.name}, or mark the other node"
                " offline if it is down"
            )
        else:
            if status.is_degraded and not status.is_connected:
                ctx.log.warn(
                    f"disk/{index}: node {name} has what was written until its"
                    " connection with the other node ended; later writes, if there were"
                    " any, are missing there"
                )
            continue
        raise errors.OpPrereqError(
            f"instance {instance.name}: cannot {action}: disk/{index} of node {name}:"
            f" {problem}",
            ecodes.ECODE_STATE,
        )


def require_right_side(ctx: base.Context, instance: objects.Instance) -> None:
    """Refuse to use data that is older than that of the secondary node.

    Only active devices show it. After a restart of a node, its connection decides.

    Raises:
        OpPrereqError: the data is older, or in use on the secondary node.
    """
    if not instance.disks_active:
        return
    problem = find_newer(ctx, instance, of(ctx.snapshot, instance))
    if problem:
        raise errors.OpPrereqError(problem, ecodes.ECODE_STATE)


def find_newer(
    ctx: base.Context,
    instance: objects.Instance,
    chosen: Sequence[tuple[int, objects.Disk]],
) -> str:
    """Return why the data of active mirrors on the primary node must not be used.

    A node that does not report its state has no say.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        chosen: index and record of mirrored disks.

    Returns:
        A text if the data of the secondary node is newer or in use, else nothing.
    """
    others = ctx.snapshot.secondary_nodes(instance)
    if not (chosen and others):
        return ""
    disks = [disk for _index, disk in chosen]
    nodes = (instance.primary_node, others[0])
    own = statuses(ctx, instance, disks, nodes[0])
    # Nodes with complete and connected mirrors have the same data.
    if own is None or not any(_is_apart(status) for status in own):
        return ""
    other = statuses(ctx, instance, disks, nodes[1])
    if other is None:
        return ""
    for (index, _disk), first, second in zip(chosen, own, other, strict=True):
        if isinstance(first, str) or isinstance(second, str):
            continue
        problem = mirrors.find(
            instance.name,
            index,
            (ctx.node_name(nodes[0]), first.row),
            (ctx.node_name(nodes[1]), second.row),
        )
        if problem is not None and problem.forbids:
            node = ctx.node_name(nodes[0])
            return (
                f"instance {instance.name}: disk/{index}: {problem.line()}; to go on"
                f" with the data of node {node} nevertheless, run gnt-instance startup"
                f" --force {instance.name}"
            )
    return ""


def is_waiting(
    ctx: base.Context, instance: objects.Instance, disk: objects.Disk
) -> bool:
    """Return whether the primary node has complete data, and no connection yet."""
    known = statuses(ctx, instance, [disk], instance.primary_node)
    status = known[0] if known else None
    return (
        isinstance(status, Status)
        and status.is_complete
        and status.is_degraded
        and not status.is_standalone
    )


def _is_apart(status: Status | str) -> bool:
    return isinstance(status, Status) and (not status.is_active or status.is_degraded)


def settle(ctx: base.Context, instance: objects.Instance, *, wait: bool) -> None:
    """Wait for the synchronisation of new disks, or check that it has begun.

    Raises:
        OpExecError: disks are degraded and are not being copied; names them.
    """
    degraded = wait_for_sync(ctx, instance, once=not wait)
    if degraded:
        raise degraded_error(instance, degraded)


def degraded_error(
    instance: objects.Instance, degraded: Sequence[str]
) -> errors.OpExecError:
    """Return the error for disks that did not get a second copy."""
    return errors.OpExecError(
        f"instance {instance.name}: {', '.join(degraded)} is degraded and not being"
        " synchronised; see gnt-instance info for the states on both nodes"
    )


def wait_for_sync(
    ctx: base.Context,
    instance: objects.Instance,
    *,
    disks: Sequence[tuple[int, objects.Disk]] | None = None,
    once: bool = False,
) -> list[str]:
    """Wait until both nodes have all data; return the names of degraded disks.

    Args:
        ctx: dependencies of the opcode.
        instance: owner of the disks.
        disks: index and record of mirrored disks; None for all.
        once: only wait until the synchronisation runs.

    Raises:
        OpExecError: the primary node does not answer.
    """
    chosen = of(ctx.snapshot, instance) if disks is None else list(disks)
    if not chosen:
        return []
    if not once:
        ctx.log.message("* waiting for the disks to be synchronised...")
    return _Waiting(ctx, instance, chosen, once=once).run()


def _can_connect(known: Sequence[Status | str]) -> bool:
    """Return whether all disks without progress wait for the other node."""
    return all(
        isinstance(status, Status)
        and (
            status.is_connecting or status.percent is not None or not status.is_degraded
        )
        for status in known
    )


class _Waiting:
    """One wait for mirrors."""

    def __init__(
        self,
        ctx: base.Context,
        instance: objects.Instance,
        disks: Sequence[tuple[int, objects.Disk]],
        *,
        once: bool,
    ) -> None:
        self._ctx = ctx
        self._instance = instance
        self._disks = disks
        self._once = once
        self._tables: list[Any] = [None, None, None]
        self._encoded: Sequence[encode.Wire] = ()
        self._shown: dict[int, progress.Progress] = {}
        # So that the first look is reported.
        self._reported = ctx.clock.monotonic() - _REPORT_S

    def run(self) -> list[str]:
        silent = 0
        hopeless = connecting = 0
        pause_s = _FIRST_POLL_S
        while True:
            known = _asked(self._ctx, self._wires(), self._instance.primary_node)
            if known is None:
                silent = self._silent(silent)
                continue
            silent = 0
            degraded, left = self._look(known)
            if not degraded and (left is None or self._once):
                return []
            if degraded:
                if _can_connect(known):
                    connecting += 1
                else:
                    # Counted apart: this may follow long attempts to connect, as while
                    # the nodes compare their data.
                    hopeless += 1
                if hopeless > _DEGRADED_TRIES or connecting > _CONNECTING_TRIES:
                    return degraded
                self._ctx.pause(_DEGRADED_S)
                continue
            hopeless = connecting = 0
            # At most the estimated rest, so that the wait ends soon after the copy.
            self._ctx.pause(min(pause_s, _POLL_S, max(left or 0.0, _FIRST_POLL_S)))
            pause_s *= 2

    def _wires(self) -> Sequence[encode.Wire]:
        """Return the form of the disks for node calls; it depends on few records."""
        snapshot = self._ctx.snapshot
        tables = [snapshot.table(name) for name in ("cluster", "nodegroups", "nodes")]
        # Snapshots share tables that no commit has changed.
        if any(new is not old for new, old in zip(tables, self._tables, strict=True)):
            self._tables = tables
            self._encoded = [
                encode.disk(snapshot, disk, self._instance)
                for _index, disk in self._disks
            ]
        return self._encoded

    def _silent(self, tries: int) -> int:
        if tries >= _SILENT_TRIES:
            node = self._ctx.node_name(self._instance.primary_node)
            raise errors.OpExecError(
                f"instance {self._instance.name}: node {node} does not report the state"
                " of its disks"
            )
        self._ctx.pause(_SILENT_S)
        return tries + 1

    def _look(self, known: Sequence[Status | str]) -> tuple[list[str], float | None]:
        """Return disks without progress, and the seconds left of the others."""
        degraded: list[str] = []
        left: float | None = None
        now = self._ctx.clock.monotonic()
        is_due = now - self._reported >= _REPORT_S
        for (index, disk), status in zip(self._disks, known, strict=True):
            if isinstance(status, Status) and status.percent is not None:
                # Without an estimate, the next look follows after the longest pause.
                left = max(left or 0.0, status.left_s or _POLL_S)
                if is_due and not self._once:
                    self._report(index, status)
                    self._reported = now
                self._show(index, disk, status)
            elif isinstance(status, str) or status.is_degraded:
                degraded.append(f"disk/{index}")
        return degraded, left

    def _report(self, index: int, status: Status) -> None:
        text = f"- device disk/{index}: {status.percent:5.2f}% done"
        if status.left_s is not None:
            text += f", {_span(status.left_s)} remaining (estimated)"
        self._ctx.log.message(text)

    def _show(self, index: int, disk: objects.Disk, status: Status) -> None:
        if index not in self._shown:
            what = f"synchronising disk/{index}"
            self._shown[index] = progress.Progress(self._ctx, what, disk.size)
        done = disk.size * (status.percent or 0.0) / 100
        self._shown[index].at(done, left_s=status.left_s)


def _span(seconds: float) -> str:
    """Return a time as ``2m 5s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours}h"] if hours else []
    parts += [f"{minutes}m"] if hours or minutes else []
    return " ".join([*parts, f"{rest}s"])
