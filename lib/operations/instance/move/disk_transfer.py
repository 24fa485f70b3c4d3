"""Transfer of disk contents between two nodes, by the nodes' transfer programs.

Each disk has a program on both nodes; this module starts, polls and cleans them up.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import export, nodeverify
from ganeti.decisions.verify import node_answer
from ganeti.model import objects
from ganeti.operations import base
from ganeti.operations.instance.move import transfer_watch
from ganeti.protocols.rpc import calls
from ganeti.protocols.rpc.answers import Transfer

#: Seconds until the other end must connect, as in Ganeti.
_DISK_TRANSFER_CONNECT_TIMEOUT: Final = 60

#: Seconds until an import must listen.
LISTEN_S: Final = 30.0
# The name becomes a program on both nodes, so it has no path and no options.
_TOOL: Final = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]*")


@dataclasses.dataclass(frozen=True)
class Side:
    """One end of a transfer.

    Attributes:
        node: uuid.
        instance: the record that the node gets.
        ends: per disk what the node reads or writes, such as ``["raw", [disk]]``.
    """

    node: str
    instance: Mapping[str, Any]
    ends: Sequence[tuple[str, list[Any]]]


@dataclasses.dataclass(frozen=True)
class TransferPlan:
    """Source and target of a transfer; both may be on one node.

    Attributes:
        name: name of the instance.
        source: the end that is read.
        target: the end that is written.
        sizes_mib: size of each disk.
        compress: name of the compression tool.
    """

    name: str
    source: Side
    target: Side
    sizes_mib: Sequence[int]
    compress: str = export.IEC_NONE

    @property
    def sides(self) -> tuple[tuple[str, Side], ...]:
        """Both sides with the keys of their programs, the source first."""
        return (
            (f"source/{self.source.node}", self.source),
            (f"target/{self.target.node}", self.target),
        )


def check_tool(cluster: objects.Cluster, tool: str) -> None:
    """Refuse a compression tool that the cluster does not allow."""
    allowed = (export.IEC_NONE, *cluster.compression_tools)
    if tool not in allowed or not _TOOL.fullmatch(tool):
        raise errors.refusal(
            f"compression tool: wanted one of {', '.join(allowed)}, found {tool!r}"
        )


def require_tool(
    ctx: base.Context, tool: str, nodes: Sequence[str], instance: str
) -> None:
    """Refuse a compression tool that is not allowed, or that a node lacks.

    A node that does not say, as one of an earlier release, refuses to start.

    Raises:
        OpPrereqError: names tool and node.
    """
    check_tool(ctx.snapshot.cluster, tool)
    if tool == export.IEC_NONE:
        return
    question = {nodeverify.NV_COMPRESSION: [tool]}
    asked = sorted({node for node in nodes if node})
    answers = ctx.rpc.call_nodes(
        asked, calls.node_verify(question, ctx.snapshot.cluster.cluster_name, {})
    )
    for uuid, answer in answers.items():
        good: Mapping[str, Any] = node_answer.clean(answer.payload)[0]
        # A node answers with the tools that it lacks.
        if tool in good.get(nodeverify.NV_COMPRESSION, ()):
            raise errors.OpPrereqError(
                f"instance {instance}: compression tool {tool}: not found on node"
                f" {ctx.node_name(uuid)}; install it there, or choose a tool"
                " that all nodes have",
                ecodes.ECODE_ENVIRON,
            )


class Progress(msgspec.Struct, frozen=True):
    """The state of a transfer whose master daemon ended.

    Keys are ``source/`` or ``target/`` with the uuid of the node.

    Attributes:
        disk: index of the disk under way; the number of disks after the last one.
        certificates: key -> name and certificate of its transfers.
        started: key -> name of its transfer of this disk.
        ended: the same of the disk before, to be cleaned up.
        attempts: how often a start of both programs has begun.
    """

    disk: int = 0
    certificates: dict[str, tuple[str, str]] = {}
    started: dict[str, str] = {}
    ended: dict[str, str] = {}
    attempts: int = 0


def _node_of(key: str) -> str:
    return key.partition("/")[2]


def magic(secret: str, instance: str, index: int) -> str:
    """Return the text at the beginning of one disk's data."""
    text = f"{export.RIE_VERSION}{secret}{instance}{index}"
    return hashlib.sha1(text.encode()).hexdigest()


def copy_all(
    ctx: base.Context,
    plan: TransferPlan,
    *,
    left: Progress,
    save: Callable[[Progress], None],
) -> None:
    """Copy the content of disks that exist on both nodes, one after another.

    Args:
        ctx: dependencies of the opcode.
        plan: source and target.
        left: where to begin; the programs of an interrupted transfer have gone on.
        save: called with the state before and after each program is started.

    Raises:
        OpExecError: one could not be copied; the transfer is cleaned up.
    """
    certificates = dict(left.certificates)
    try:
        for key, side in plan.sides:
            if key in certificates:
                continue
            answer = ctx.rpc.call_node(
                side.node, calls.x509_cert_create(export.RIE_CERT_VALIDITY)
            )
            name, pem = answer.unwrap("cannot make a certificate for the transfer")
            certificates[key] = (name, pem)
            left = msgspec.structs.replace(left, certificates=dict(certificates))
            # Stored one by one: after a crash, only stored keys are removed.
            save(left)
        # A disk is stored as copied before its programs are cleaned up. If the master
        # ended in between, both programs still have their files.
        _clean_up(ctx, left.ended)
        for index in range(len(plan.sizes_mib)):
            if index >= left.disk:
                _Transfer(ctx, plan, left, save).run()
                left = Progress(index + 1, certificates)
    finally:
        _remove_certificates(ctx, certificates)


def clean_up(ctx: base.Context, left: Progress) -> None:
    """End the programs of an interrupted copy, and remove what is left of it.

    Failures are logged.
    """
    _clean_up(ctx, left.ended)
    _clean_up(ctx, left.started)
    _remove_certificates(ctx, left.certificates)


def _remove_certificates(
    ctx: base.Context, certificates: Mapping[str, tuple[str, str]]
) -> None:
    for key, (name, _pem) in certificates.items():
        result = ctx.rpc.call_node(_node_of(key), calls.x509_cert_remove(name))
        ctx.warn_failed(result, "cannot remove a transfer's certificate")


class _Transfer:
    """The transfer of one disk."""

    def __init__(
        self,
        ctx: base.Context,
        plan: TransferPlan,
        left: Progress,
        save: Callable[[Progress], None],
    ) -> None:
        self._ctx = ctx
        self._plan = plan
        self._certificates = left.certificates
        self._index = left.disk
        self._size_mib = plan.sizes_mib[left.disk]
        (self._source_key, self._source), (self._target_key, self._target) = plan.sides
        self._left = left
        self._save = save
        self._started = dict(left.started)
        self._poll = transfer_watch.Watch(ctx, self._what)

    @property
    def _what(self) -> str:
        return f"instance {self._plan.name}: copying disk/{self._index}"

    def run(self) -> None:
        """Copy the disk.

        Raises:
            OpExecError: it failed; both programs have ended.
        """
        ctx = self._ctx
        target = ctx.snapshot.nodes[self._target.node]
        ctx.log.message(
            f"* copying disk/{self._index} ({self._size_mib} MiB) to {target.name}"
        )
        begun = ctx.clock.monotonic()
        try:
            # Each end has one certificate, so fewer programs are an interrupted start.
            if len(self._started) < len(self._certificates):
                self._start()
            self._watch()
            # Stored before the clean-up: a node has no status of a program without
            # files, so after a crash a copied disk would look like a failed one.
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
        ctx = self._ctx
        address = ctx.snapshot.nodes[self._target.node].secondary_ip
        _clean_up(ctx, self._started)
        self._started.clear()
        # A node starts only one program per request key. The number is stored before it
        # is used, so that no later attempt gets a program that has been ended.
        attempts = self._left.attempts + 1
        self._left = msgspec.structs.replace(self._left, attempts=attempts)
        self._record()
        self._started[self._target_key] = self._poll.start(
            self._target.node,
            calls.import_start(
                self._options(self._target_key, self._source_key),
                self._target.instance,
                f"disk{self._index}",
                self._target.ends[self._index],
            ),
        )
        self._record()
        # The export gets the port, so the import must listen before.
        port = self._poll.wait_for_port(
            self._target.node, self._started[self._target_key], LISTEN_S
        )
        self._started[self._source_key] = self._poll.start(
            self._source.node,
            calls.export_start(
                self._options(self._source_key, self._target_key),
                address,
                port,
                self._source.instance,
                f"disk{self._index}",
                self._source.ends[self._index],
            ),
        )
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
        # Both ends must expect the same text, so both take the key of the target.
        secret = self._certificates[self._target_key][0]
        return {
            "key_name": name,
            "ca_pem": pem,
            "compress": self._plan.compress,
            "magic": magic(secret, self._plan.name, self._index),
            "ipv6": ":" in ctx.snapshot.nodes[self._target.node].secondary_ip,
            "connect_timeout": _DISK_TRANSFER_CONNECT_TIMEOUT,
            "request_key": f"disk{self._index}-{self._left.attempts}",
        }

    # Progress
    def _status(self, key: str) -> Transfer:
        return self._poll.status(_node_of(key), self._started[key])

    def _watch(self) -> None:
        """Wait until both programs end, and report the progress."""
        self._poll.hurry()
        report = transfer_watch.Report(self._ctx, f"disk/{self._index}", self._size_mib)
        keys = (self._target_key, self._source_key)
        while True:
            statuses = {key: self._status(key) for key in keys}
            if any(map(transfer_watch.has_failed, statuses.values())):
                self._fail(statuses)
            report.report_progress(statuses[self._target_key])
            if all(status.exit_status == 0 for status in statuses.values()):
                return
            self._poll.pause()

    def _fail(self, statuses: dict[str, Transfer]) -> NoReturn:
        """Raise the error with the words of both ends, the source first.

        The other end notices a broken connection a little later.
        """
        deadline = self._ctx.clock.monotonic() + transfer_watch.DETAILS_S
        self._poll.hurry()
        while self._ctx.clock.monotonic() < deadline:
            running = [
                key for key, each in statuses.items() if transfer_watch.is_running(each)
            ]
            if not running:
                break
            self._poll.pause()
            statuses |= {key: self._status(key) for key in running}
        words = [
            self._poll.words(_node_of(key), statuses[key])
            for key in (self._source_key, self._target_key)
            if statuses[key].exit_status != 0
        ]
        raise errors.OpExecError(f"{self._what}: {'; '.join(words)}")


def _clean_up(ctx: base.Context, transfers: Mapping[str, str]) -> None:
    """End transfers, by key, and remove their files; missing ones are no failure."""
    for key, name in transfers.items():
        result = ctx.rpc.call_node(_node_of(key), calls.impexp_cleanup(name))
        ctx.warn_failed(result, "cannot clean up after the transfer")
