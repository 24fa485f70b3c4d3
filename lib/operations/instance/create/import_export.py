"""OP_INSTANCE_CREATE in mode import: create an instance from an export on a node."""

import hashlib
from typing import Any, ClassVar

import msgspec

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import export as constants
from ganeti.model import opcodes
from ganeti.model.objects import export_info, lookup
from ganeti.operations.instance import common
from ganeti.operations.instance.create import (
    create_request,
    export_request,
    filled,
    stored_exports,
)
from ganeti.operations.instance.move import disk_transfer
from ganeti.operations.parameters import typed_params
from ganeti.protocols.rpc import encode


class Filling(msgspec.Struct, frozen=True):
    """The state of an import whose master daemon ended while disks were filled.

    Attributes:
        uuid: of the new instance, which has its record.
        node: uuid of the node with the export.
        path: directory of the export there.
        dumps: names of its files, one per disk.
        old_name: name of the exported instance.
        filling: progress of the copy.
        digest: of the description; empty if it is not known.
    """

    uuid: str
    node: str
    path: str
    dumps: tuple[str, ...]
    old_name: str
    filling: disk_transfer.Progress = disk_transfer.Progress()
    digest: str = ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class InstanceImport(filled.FilledInstance):
    """Unit that creates an instance and fills its disks from an export."""

    MODE: ClassVar[str] = "import"

    source: str
    path: str
    #: Names of the files of the export, one per disk.
    dumps: tuple[str, ...]
    info: export_info.ExportInfo
    #: Set once the record exists.
    state: Filling | None = None

    def expand_names(self) -> None:
        """Read the export, complete the request with it, and look the nodes up."""
        self._given = self.op
        saved = self.ctx.resumption
        if saved is not None and "filling" in saved:
            self._restore(msgspec.convert(saved, Filling))
            return
        if self._is_repeated():
            super().expand_names()
            return
        self._find_export()
        self._text = self._read()
        self.info = self._parse(self._text)
        self.dumps = tuple(disk.dump for disk in self.info.disks)
        self.op = export_request.completed(
            self.op, self.info, self.name, self.ctx.snapshot.cluster, self.ctx.log.warn
        )
        create_request.check_tags(self.op.tags, self.name)
        typed_params.check_osparams(f"instance {self.name}", self.op.osparams)
        self.check_seed()
        self._check_disks()
        super().expand_names()

    @property
    def requested(self) -> opcodes.InstanceCreate:
        """The request without the values of the export."""
        return self._given

    def _is_repeated(self) -> bool:
        """Return whether an earlier request with the same key has made the instance."""
        key = self.op.request_key
        return key is not None and self.ctx.snapshot.request_owner(key) is not None

    def _find_export(self) -> None:
        """Determine node and directory of the export."""
        ctx, given = self.ctx, self.op.src_path or self.name
        is_name = "/" not in given
        self.path = f"{_buildconf.EXPORT_DIR}/{given}" if is_name else given
        if self.op.src_node:
            self.source = lookup.expand_node(ctx.snapshot, self.op.src_node)
            return
        if not is_name:
            raise self.prereq(
                f"instance {self.name}: name the node with the export {given}"
                " (--src-node); only names of exports are searched for on all nodes"
            )
        holders = stored_exports.holders(ctx, given)
        if len(holders) != 1:
            names = ", ".join(common.node_name(ctx, uuid) for uuid in holders)
            outcome = (
                f"found it on {names}; choose with --src-node"
                if names
                else ("found it on no node that answers")
            )
            raise self.prereq(
                f"instance {self.name}: wanted one export {given}, {outcome}",
                ecodes.ECODE_INVAL if names else ecodes.ECODE_NOENT,
            )
        (self.source,) = holders

    def _read(self) -> str:
        node = self.ctx.snapshot.nodes[self.source]
        if node.offline:
            raise self.prereq(
                f"instance {self.name}: node {node.name}, which has the export, is"
                " marked offline",
                ecodes.ECODE_STATE,
            )
        text: str = self.ctx.rpc.call_one(
            "export_info", self.source, self.path
        ).require(f"instance {self.name}", ecodes.ECODE_STATE)
        return text

    def _parse(self, text: str) -> export_info.ExportInfo:
        try:
            return export_info.parse(text)
        except errors.ParseError as err:
            node = common.node_name(self.ctx, self.source)
            raise self.prereq(
                f"instance {self.name}: export {self.path} on node {node}:"
                f" {constants.EXPORT_CONF_FILE}: {err}"
            ) from err

    def _check_disks(self) -> None:
        """Refuse disks that cannot take the content of the exported ones."""
        wanted, given = self.info.disks, self.op.disks
        if len(given) < len(wanted):
            raise self.prereq(
                f"instance {self.name}: wanted at least {len(wanted)} disks, as many as"
                f" were exported, found {len(given)}"
            )
        if any("adopt" in disk for disk in given):
            raise self.prereq(
                f"instance {self.name}: the disks get the content of the export, so"
                " none can be adopted"
            )

    def check_prereq(self) -> None:
        """Check everything, and that the export is the one that was read."""
        super().check_prereq()
        if self.repeated is not None:
            return
        nodes = [self.source, self.primary]
        disk_transfer.require_tool(self.ctx, self.op.compress, nodes, self.name)
        if self._read() != self._text:
            raise self.prereq(
                f"instance {self.name}: the export {self.path} was replaced while the"
                " job waited for locks; repeat the request",
                ecodes.ECODE_STATE,
            )
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Refuse disks smaller than the exported ones, or than what is copied as it is.

        The file that the script of an OS reads may be larger than its disk.
        """
        mib = 1 << 20
        pairs = zip(self.info.disks, self.plan.disks, strict=False)
        for index, (exported, disk) in enumerate(pairs):
            size_mib = exported.size
            if not self.plan.instance.os:
                size_mib = max(size_mib, -(-(exported.dump_bytes or 0) // mib))
            if size_mib > disk.size:
                raise self.prereq(
                    f"instance {self.name}: disk/{index}: wanted at least {size_mib}"
                    f" MiB for the exported disk, found {disk.size} MiB"
                )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the new instance and of the export."""
        env = super().hooks_env()
        if not env:
            return env
        return env | {
            "SRC_NODE": common.node_name(self.ctx, self.source),
            "SRC_PATH": self.path,
            "SRC_IMAGES": [f"{self.path}/{dump}" for dump in self.dumps],
        }

    # Filling
    @property
    def old_name(self) -> str:
        """Name of the exported instance."""
        return self._filling.old_name

    def fill(self) -> None:
        """Copy the exported content."""
        if self.state is None:
            self.state = Filling(
                self.plan.instance.uuid,
                self.source,
                self.path,
                self.dumps,
                self.info.name,
                digest=_digest(self._text),
            )
        self._copy(self.state)
        self._check_unchanged(self.state)

    def end_copy(self) -> None:
        """End both programs of the disk that an interrupted run was filling."""
        disk_transfer.clean_up(self.ctx, self._filling.filling)

    def _check_unchanged(self, state: Filling) -> None:
        """Refuse disks that may be of two exports, an older and a newer one.

        Raises:
            OpExecError: the export was replaced or removed during the copy.
        """
        result = self.ctx.rpc.call_one("export_info", state.node, state.path)
        what = f"instance {self.name}: cannot read the export {state.path} again"
        if result.failed and not result.is_answered:
            self.ctx.log.warn(result.describe(what))
            return
        if state.digest and _digest(result.unwrap(what)) != state.digest:
            raise errors.OpExecError(
                f"instance {self.name}: the export {state.path} was replaced while it"
                " was copied; repeat the request"
            )

    def _save_copy(self, progress: disk_transfer.Progress) -> None:
        state = msgspec.structs.replace(self._filling, filling=progress)
        self.state = state
        self.ctx.save_resumption(msgspec.to_builtins(state))

    @property
    def _filling(self) -> Filling:
        if self.state is None:
            raise errors.ProgrammerError("an import without a state was continued")
        return self.state

    def _copy(self, state: Filling) -> None:
        ctx, instance = self.ctx, self.instance
        if state.filling.disk >= len(state.dumps):
            disk_transfer.clean_up(ctx, state.filling)
            return
        snapshot = ctx.snapshot
        made = snapshot.instance_disks(instance)[: len(state.dumps)]
        wires = [encode.disk(snapshot, disk, instance) for disk in made]
        read: list[tuple[str, list[Any]]] = [
            (constants.IEIO_FILE, [f"{state.path}/{dump}"]) for dump in state.dumps
        ]
        written = [
            stored_exports.end_of(instance.os, wire, i) for i, wire in enumerate(wires)
        ]
        private = self.private_wire()
        plan = disk_transfer.TransferPlan(
            instance.name,
            disk_transfer.Side(state.node, encode.instance(snapshot, instance), read),
            disk_transfer.Side(instance.primary_node, private, written),
            [disk.size for disk in made],
            self.op.compress,
        )
        disk_transfer.copy_all(ctx, plan, left=state.filling, save=self._save_copy)

    # Continuing
    def _restore(self, state: Filling) -> None:
        """Take over an interrupted import, with the lock of the instance alone."""
        self.state, self.source, self.path = state, state.node, state.path
        self.dumps = state.dumps
        self.take_over(state.uuid)
