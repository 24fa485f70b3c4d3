"""Transfer of disk contents between two nodes, by the nodes' transfer programs.

Each disk has a program on both nodes; this module starts, polls and cleans them up.
"""

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti import errors, objects
from ganeti.cmdlib import base, progress
from ganeti.cmdlib.instance import common
from ganeti.constants import export as constants
from ganeti.rpc import encode

#: Seconds until an import must listen.
LISTEN_S: Final = 30.0
#: Seconds between two polls: at the beginning, and at most.
_FIRST_POLL_S: Final = 0.05
_POLL_S: Final = 2.0
#: Seconds between two progress lines.
REPORT_S: Final = 60.0


@dataclasses.dataclass(frozen=True)
class TransferPlan:
    """Source and target of a transfer.

    Attributes:
        instance: its record at the source.
        moved: its record at the target.
        source: node uuid.
        target: node uuid.
        compress: name of the compression tool.
    """

    instance: objects.Instance
    moved: objects.Instance
    source: str
    target: str
    compress: str = constants.IEC_NONE


class Progress(msgspec.Struct, frozen=True):
    """The state of a transfer whose master daemon ended.

    Attributes:
        disk: index of the disk under way; the number of disks after the last one.
        certificates: node uuid -> name and certificate of its transfers.
        started: node uuid -> name of its transfer of this disk.
        ended: the same of the disk before, to be cleaned up.
    """

    disk: int = 0
    certificates: dict[str, tuple[str, str]] = {}
    started: dict[str, str] = {}
    ended: dict[str, str] = {}


def magic(secret: str, instance: str, index: int) -> str:
    """Return the text at the beginning of one disk's data."""
    text = f"{constants.RIE_VERSION}{secret}{instance}{index}"
    return hashlib.sha1(text.encode()).hexdigest()


def copy_all(
    ctx: base.Context,
    plan: TransferPlan,
    disks: Sequence[objects.Disk],
    *,
    left: Progress,
    save: Callable[[Progress], None],
) -> None:
    """Copy the content of disks that exist on both nodes, one after another.

    Args:
        ctx: dependencies of the opcode.
        plan: source and target.
        disks: the disks at the target.
        left: where to begin; the programs of an interrupted transfer have gone on.
        save: called with the state before and after each program is started.

    Raises:
        OpExecError: one could not be copied; the transfer is cleaned up.
    """
    certificates = dict(left.certificates)
    try:
        for node in (plan.source, plan.target):
            if node in certificates:
                continue
            answer = ctx.rpc.call_one(
                "x509_cert_create", node, constants.RIE_CERT_VALIDITY
            )
            name, pem = answer.unwrap("cannot make a certificate for the transfer")
            certificates[node] = (name, pem)
            left = msgspec.structs.replace(left, certificates=dict(certificates))
            save(left)
        _clean_up(ctx, left.ended)
        for index, disk in enumerate(disks):
            if index >= left.disk:
                _Transfer(ctx, plan, disk, left, save).run()
                left = Progress(index + 1, certificates)
    finally:
        _remove_certificates(ctx, certificates)


def clean_up(ctx: base.Context, left: Progress) -> None:
    """Remove the remains of transfers that have ended; failures are logged."""
    _clean_up(ctx, left.ended)
    _remove_certificates(ctx, left.certificates)


def _remove_certificates(
    ctx: base.Context, certificates: Mapping[str, tuple[str, str]]
) -> None:
    for node, (name, _pem) in certificates.items():
        result = ctx.rpc.call_one("x509_cert_remove", node, name)
        common.warn_failed(ctx, result, "cannot remove a transfer's certificate")


class _Transfer:
    """The transfer of one disk."""

    def __init__(
        self,
        ctx: base.Context,
        plan: TransferPlan,
        disk: objects.Disk,
        left: Progress,
        save: Callable[[Progress], None],
    ) -> None:
        self._ctx = ctx
        self._plan = plan
        self._certificates = left.certificates
        self._disk = disk
        self._index = left.disk
        self._left = left
        self._save = save
        self._started = dict(left.started)
        self._wait_s = _FIRST_POLL_S

    @property
    def _what(self) -> str:
        return f"instance {self._plan.instance.name}: copying disk/{self._index}"

    def run(self) -> None:
        """Copy the disk.

        Raises:
            OpExecError: it failed; both programs have ended.
        """
        plan, ctx = self._plan, self._ctx
        target = ctx.snapshot.nodes[plan.target]
        ctx.log.message(
            f"* copying disk/{self._index} ({self._disk.size} MiB) to {target.name}"
        )
        begun = ctx.clock.monotonic()
        try:
            if len(self._started) < len(self._certificates):
                self._start()
            self._watch()
            after = Progress(
                self._index + 1, self._certificates, ended=dict(self._started)
            )
            self._save(after)
        finally:
            _clean_up(ctx, self._started)
        taken = ctx.clock.monotonic() - begun
        ctx.log.message(f"* disk/{self._index} copied in {taken:.1f} s")

    def _start(self) -> None:
        """Start both programs.

        An interrupted start may have left an import, and an export that was not
        recorded. Without its import, an export ends.
        """
        plan, ctx = self._plan, self._ctx
        target = ctx.snapshot.nodes[plan.target]
        _clean_up(ctx, self._started)
        self._started.clear()
        self._record()
        self._started[plan.target] = ctx.rpc.call_one(
            "import_start",
            plan.target,
            self._options(plan.target, plan.source),
            encode.instance(ctx.snapshot, plan.moved),
            f"disk{self._index}",
            self._end(plan.moved),
        ).unwrap(self._what)
        self._record()
        port = self._wait_for_port()
        self._started[plan.source] = ctx.rpc.call_one(
            "export_start",
            plan.source,
            self._options(plan.source, plan.target),
            target.secondary_ip,
            port,
            encode.instance(ctx.snapshot, plan.instance),
            f"disk{self._index}",
            self._end(plan.instance),
        ).unwrap(self._what)
        self._record()

    def _record(self) -> None:
        """Store the programs that have been started."""
        self._left = msgspec.structs.replace(
            self._left, started=dict(self._started), ended={}
        )
        self._save(self._left)

    def _options(self, own: str, other: str) -> dict[str, Any]:
        ctx = self._ctx
        name, pem = self._certificates[own][0], self._certificates[other][1]
        secret = self._certificates[self._plan.target][0]
        return {
            "key_name": name,
            "ca_pem": pem,
            "compress": self._plan.compress,
            "magic": magic(secret, self._plan.instance.name, self._index),
            "ipv6": ":" in ctx.snapshot.nodes[self._plan.target].secondary_ip,
            "connect_timeout": constants.DISK_TRANSFER_CONNECT_TIMEOUT,
        }

    def _end(self, instance: objects.Instance) -> list[Any]:
        wire = encode.disk(self._ctx.snapshot, self._disk, instance)
        return [constants.IEIO_RAW_DISK, [wire]]

    # Progress
    def _wait_for_port(self) -> int:
        ctx, node = self._ctx, self._plan.target
        deadline = ctx.clock.monotonic() + LISTEN_S
        while True:
            status = self._status(node) or {}
            self._raise_failure(node, status)
            if status.get("listen_port"):
                return int(status["listen_port"])
            if ctx.clock.monotonic() >= deadline:
                name = common.node_name(ctx, node)
                raise errors.OpExecError(
                    f"{self._what}: the import on node {name} does not listen after"
                    f" {LISTEN_S:g} s"
                )
            self._pause()

    def _watch(self) -> None:
        """Wait until both programs end, and report the progress."""
        plan, ctx = self._plan, self._ctx
        self._wait_s = _FIRST_POLL_S
        report = _Report(ctx, f"disk/{self._index}", self._disk.size)
        while True:
            done = 0
            for node in (plan.target, plan.source):
                status = self._status(node)
                if status is None:
                    continue
                self._raise_failure(node, status)
                done += status["exit_status"] == 0
                if node == plan.target:
                    report.report_progress(status)
            if done == 2:
                return
            self._pause()

    def _pause(self) -> None:
        self._ctx.clock.wait(threading.Event(), self._wait_s)
        self._wait_s = min(_POLL_S, self._wait_s * 1.5)

    def _status(self, node: str) -> dict[str, Any] | None:
        name = self._started[node]
        answer = self._ctx.rpc.call_one("impexp_status", node, [name])
        statuses = answer.unwrap(f"{self._what}: cannot ask for the progress")
        status: dict[str, Any] | None = statuses[0]
        return status

    def _raise_failure(self, node: str, status: dict[str, Any]) -> None:
        if not status.get("exit_status"):
            return
        text = status.get("error_message") or "failed without a message"
        lines = [line for line in status.get("recent_output") or () if text not in line]
        name = common.node_name(self._ctx, node)
        more = f" ({' / '.join(lines[-3:])})" if lines else ""
        raise errors.OpExecError(f"{self._what}: node {name}: {text}{more}")


def _clean_up(ctx: base.Context, transfers: Mapping[str, str]) -> None:
    """End transfers, by node, and remove their files; missing ones are no failure."""
    for node, name in transfers.items():
        result = ctx.rpc.call_one("impexp_cleanup", node, name)
        common.warn_failed(ctx, result, "cannot clean up after the transfer")


class _Report:
    """Progress of a transfer: rare job log lines, frequent entries for terminals."""

    def __init__(self, ctx: base.Context, what: str, size_mib: int) -> None:
        self._ctx = ctx
        self._what = what
        self._size_mib = size_mib
        self._last = ctx.clock.monotonic()
        self._progress = progress.Progress(ctx, f"copying {what}", size_mib)

    def report_progress(self, status: dict[str, Any]) -> None:
        """Report the progress that the receiving program states."""
        done = float(status.get("progress_mbytes") or 0)
        rate, left_s = status.get("progress_throughput"), status.get("progress_eta")
        self._progress.at(done, rate=rate, left_s=left_s)
        now = self._ctx.clock.monotonic()
        if now - self._last >= REPORT_S:
            text = progress.line(self._what, done, self._size_mib, rate, left_s)
            self._ctx.log.message(f"* {text}")
            self._last = now
