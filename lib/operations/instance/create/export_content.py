"""OP_INSTANCE_CREATE in mode import: request and content from an export on a node.

Values of the request win. The description is data of whoever made the export: names
of parameters that this release does not have are left out, and values are checked like
those of any request. Those that would give a guest files, devices or programs of its
node come from the request or the cluster alone.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import forms, hvparams
from ganeti.base.constants.parameters import params as constants
from ganeti.base.constants.parameters.forms import Param
from ganeti.base.constants.protocols import export
from ganeti.base.errors import refusal
from ganeti.model import objects, opcodes
from ganeti.model.objects import export_info, lookup, params
from ganeti.model.objects.export_info import ExportedDisk, ExportInfo
from ganeti.operations.backup import stored_exports
from ganeti.operations.instance.create import content, request_parts
from ganeti.operations.instance.move import disk_transfer
from ganeti.operations.parameters import typed_params
from ganeti.protocols.rpc import calls, encode

Warn = Callable[[str], None]

#: Most names in one warning.
_MAX_NAMED: Final = 10


def completed(
    op: opcodes.InstanceCreate,
    info: ExportInfo,
    name: str,
    cluster: objects.Cluster,
    warn: Warn,
) -> opcodes.InstanceCreate:
    """Return the request with the missing parts from the export.

    Args:
        op: the request.
        info: the export.
        name: the name of the new instance.
        cluster: its parameters are those of the node's administrators.
        warn: gets a line about the parameters of each kind that are left out.

    Raises:
        OpPrereqError: the export alone has a hypervisor whose guests control nodes.
    """
    hypervisor = op.hypervisor or info.hypervisor or None
    if forms.UNSEPARATED.applies(hypervisor) and not op.hypervisor:
        raise refusal(
            f"instance {name}: the export has hypervisor {hypervisor}, whose instances"
            " control their node; give it with -H if you trust the export"
        )
    is_other = bool(op.hypervisor and op.hypervisor != info.hypervisor)
    os_type = op.os_type or info.os or None
    own_private = op.osparams_private or {}
    private = _without(info.osparams_private, op.osparams)
    return msgspec.structs.replace(
        op,
        os_type=os_type,
        hypervisor=hypervisor,
        # Parameters of one hypervisor do not apply to another one.
        hvparams=op.hvparams
        if is_other
        else _hypervisor(
            info.hvparams,
            op.hvparams,
            params.hvparams_for(cluster, hypervisor or "", os_type or "", {}),
            hypervisor,
            warn,
        )
        | op.hvparams,
        beparams=_backend(info.backend, op.beparams, warn) | op.beparams,
        osparams=_without(info.osparams, own_private) | op.osparams,
        osparams_private=(private | own_private) or None,
        disk_template=op.disk_template or info.disk_template or None,
        disks=op.disks or [_disk(disk) for disk in info.disks],
        nics=_nics(op, info, name),
        tags=op.tags or list(info.tags),
        force_variant=True,
    )


def _without(given: Mapping[str, str], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of the OS except those that the request has of another kind."""
    return {key: value for key, value in given.items() if key not in names}


def _hypervisor(
    given: Mapping[str, str],
    requested: Mapping[str, Any],
    own: Mapping[str, Any],
    hypervisor: str | None,
    warn: Warn,
) -> dict[str, Any]:
    """Return those parameters of an export that an instance may have.

    Args:
        given: of the export.
        requested: of the request.
        own: those of the cluster.
        hypervisor: its name.
        warn: see `completed`.
    """
    table = hvparams.HYPERVISOR.get(hypervisor or "", {})
    what = f"hypervisor {hypervisor}"
    _warn_left_out(
        set(given) - set(table), what, "this release does not have them", warn
    )
    known = {n: v for n, v in given.items() if n in table and not table[n].cluster_only}
    refused = {
        name
        for name, value in known.items()
        if name not in requested and not _is_trusted(table[name], value, own[name])
    }
    why = (
        "they name files, devices or programs of the node, with other values than the"
        " cluster's; give them with -H if you trust the export"
    )
    _warn_left_out(refused, what, why, warn)
    return {name: value for name, value in known.items() if name not in refused}


def _is_trusted(row: Param, value: str, own: Any) -> bool:
    """Return whether a value is the cluster's, or gives the guest nothing."""
    if row.root is None or value == str(own):
        return True
    try:
        typed = typed_params.coerce(value, row.type, "")
    except errors.TypeEnforcementError:
        return False
    return typed == own or not row.root.applies(typed)


def _backend(
    given: Mapping[str, str], requested: Mapping[str, Any], warn: Warn
) -> dict[str, Any]:
    table = constants.BACKEND
    known: dict[str, Any] = {n: v for n, v in given.items() if n in table}
    _warn_left_out(
        set(given) - set(table), "backend", "this release does not have them", warn
    )
    if "memory" in known:
        # It sets both limits, and would do so after those of the request.
        known["maxmem"] = known["minmem"] = known.pop("memory")
    # The request's memory sets both limits, so no exported limit may stay beside it.
    if "memory" in requested:
        for name in ("maxmem", "minmem"):
            known.pop(name, None)
    return known


def _warn_left_out(names: set[str], what: str, why: str, warn: Warn) -> None:
    """Warn of parameters; an export may have any number of them."""
    if not names:
        return
    # The names are those of the export, which may be of any length.
    listed = [f"{name:.40}" for name in sorted(names)[:_MAX_NAMED]]
    more = f" and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
    text = ", ".join(map(repr, listed))
    warn(f"{what} parameters of the export are left out, as {why}: {text}{more}")


def _disk(disk: ExportedDisk) -> dict[str, Any]:
    spec: dict[str, Any] = {"size": disk.size, "mode": disk.mode}
    return spec | ({"name": disk.name} if disk.name else {})


def _nics(
    op: opcodes.InstanceCreate, info: ExportInfo, name: str
) -> list[dict[str, Any]]:
    """Return the requested NICs, or the exported ones.

    An instance of the exported name gets the exported MAC addresses.
    """
    if op.no_nics:
        return []
    is_same = name == info.name
    nics: list[dict[str, Any]] = [dict(nic.items()) for nic in op.nics]
    if not nics:
        nics = [_nic(nic) for nic in info.nics]
    for index, nic in enumerate(nics):
        if (nic.get("mac") or "auto") != "auto":
            continue
        has_old = is_same and index < len(info.nics)
        nic["mac"] = info.nics[index].get("mac", "auto") if has_old else "auto"
    return nics


def _nic(nic: Mapping[str, str]) -> dict[str, Any]:
    """Return an exported NIC as a request; a network gives mode and link."""
    place = ("network",) if nic.get("network") else ("mode", "link", "vlan")
    keys = ("ip", *place, "name")
    return {key: nic[key] for key in keys if nic.get(key)}


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


class ExportContent(content.Content):
    """The content of an export that a node stores."""

    source: str
    path: str
    #: Names of the files of the export, one per disk.
    dumps: tuple[str, ...]
    info: export_info.ExportInfo
    #: Set once the record exists.
    state: Filling | None = None

    def check_arguments(self) -> None:
        """Do nothing: what is missing comes from the export."""

    def restore(self, saved: Mapping[str, Any]) -> str:
        """Take over the state of an interrupted copy."""
        if "filling" not in saved:
            return ""
        self.state = state = msgspec.convert(saved, Filling)
        self.source, self.path, self.dumps = state.node, state.path, state.dumps
        return state.uuid

    def complete(self) -> opcodes.InstanceCreate:
        """Read the export, unless the instance is made, and complete the request."""
        key = self.op.request_key
        if key is not None and self.ctx.snapshot.request_owner(key) is not None:
            return self.op
        self._find_export()
        self._text = self._read()
        self.info = self._parse(self._text)
        self.dumps = tuple(disk.dump for disk in self.info.disks)
        self.op = op = completed(
            self.op, self.info, self.name, self.ctx.snapshot.cluster, self.ctx.log.warn
        )
        request_parts.check_tags(op.tags, self.name)
        typed_params.check_osparams(f"instance {self.name}", op.osparams)
        request_parts.check_seed(op, self.name)
        self._check_disks()
        return op

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
                f"name the node with the export {given}"
                " (--src-node); only names of exports are searched for on all nodes"
            )
        holders = stored_exports.holders(ctx, given)
        if len(holders) != 1:
            names = ", ".join(ctx.node_name(uuid) for uuid in holders)
            outcome = (
                f"found it on {names}; choose with --src-node"
                if names
                else ("found it on no node that answers")
            )
            raise self.prereq(
                f"wanted one export {given}, {outcome}",
                ecodes.ECODE_INVAL if names else ecodes.ECODE_NOENT,
            )
        (self.source,) = holders

    def _read(self) -> str:
        node = self.ctx.snapshot.nodes[self.source]
        if node.offline:
            raise self.prereq(
                f"node {node.name}, which has the export, is marked offline",
                ecodes.ECODE_STATE,
            )
        text: str = self.ctx.rpc.call_node(
            self.source, calls.export_info(self.path)
        ).require(f"instance {self.name}", ecodes.ECODE_STATE)
        return text

    def _parse(self, text: str) -> export_info.ExportInfo:
        try:
            return export_info.parse(text)
        except errors.ParseError as err:
            node = self.ctx.node_name(self.source)
            raise self.prereq(
                f"export {self.path} on node {node}: {export.EXPORT_CONF_FILE}: {err}"
            ) from err

    def _check_disks(self) -> None:
        """Refuse disks that cannot take the content of the exported ones."""
        wanted, given = self.info.disks, self.op.disks
        if len(given) < len(wanted):
            raise self.prereq(
                f"wanted at least {len(wanted)} disks, as many as"
                f" were exported, found {len(given)}"
            )
        if any("adopt" in disk for disk in given):
            raise self.prereq(
                "the disks get the content of the export, so none can be adopted"
            )

    def check(self, instance: objects.Instance, made: Sequence[objects.Disk]) -> None:
        """Check the disks, and that the export is the one that was read."""
        nodes = [self.source, instance.primary_node]
        disk_transfer.require_tool(self.ctx, self.op.compress, nodes, self.name)
        if self._read() != self._text:
            raise self.prereq(
                f"the export {self.path} was replaced while the job waited for locks;"
                " repeat the request",
                ecodes.ECODE_STATE,
            )
        self._check_sizes(instance, made)

    def _check_sizes(
        self, instance: objects.Instance, made: Sequence[objects.Disk]
    ) -> None:
        """Refuse disks smaller than the exported ones, or than what is copied as it is.

        The file that the script of an OS reads may be larger than its disk.
        """
        mib = 1 << 20
        pairs = zip(self.info.disks, made, strict=False)
        for index, (exported, disk) in enumerate(pairs):
            size_mib = exported.size
            if not instance.os:
                size_mib = max(size_mib, -(-(exported.dump_bytes or 0) // mib))
            if size_mib > disk.size:
                raise self.prereq(
                    f"disk/{index}: wanted at least {size_mib}"
                    f" MiB for the exported disk, found {disk.size} MiB"
                )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the export."""
        return {
            "SRC_NODE": self.ctx.node_name(self.source),
            "SRC_PATH": self.path,
            "SRC_IMAGES": [f"{self.path}/{dump}" for dump in self.dumps],
        }

    @property
    def old_name(self) -> str:
        """Name of the exported instance."""
        return self._filling.old_name

    def copy(self, instance: objects.Instance) -> None:
        """Copy the exported content."""
        if self.state is None:
            self.state = Filling(
                instance.uuid,
                self.source,
                self.path,
                self.dumps,
                self.info.name,
                digest=_digest(self._text),
            )
        self._copy(instance, self.state)
        # The nodes are not locked during the copy, so another export may be there now.
        self._check_unchanged(self.state)

    def end_copy(self, instance: objects.Instance) -> None:
        """End both programs of the disk that an interrupted run was filling."""
        del instance
        disk_transfer.clean_up(self.ctx, self._filling.filling)

    def _check_unchanged(self, state: Filling) -> None:
        """Refuse disks that may be of two exports, an older and a newer one.

        Raises:
            OpExecError: the export was replaced or removed during the copy.
        """
        result = self.ctx.rpc.call_node(state.node, calls.export_info(state.path))
        what = f"instance {self.name}: cannot read the export {state.path} again"
        # Silence does not show that the export was replaced; the copy is complete.
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

    def _copy(self, instance: objects.Instance, state: Filling) -> None:
        ctx = self.ctx
        # All disks are copied, but their programs may not have been cleaned up.
        if state.filling.disk >= len(state.dumps):
            disk_transfer.clean_up(ctx, state.filling)
            return
        snapshot = ctx.snapshot
        # Further disks of the request stay empty.
        made = snapshot.instance_disks(instance)[: len(state.dumps)]
        read: list[tuple[str, list[Any]]] = [
            (export.IEIO_FILE, [f"{state.path}/{dump}"]) for dump in state.dumps
        ]
        written = stored_exports.disk_ends(snapshot, instance, made)
        private = encode.private_instance(
            ctx.snapshot, instance, osparams_secret=self.op.osparams_secret
        )
        plan = disk_transfer.TransferPlan(
            instance.name,
            # This node only reads files, so it gets no private or secret parameters.
            disk_transfer.Side(state.node, encode.instance(snapshot, instance), read),
            disk_transfer.Side(instance.primary_node, private, written),
            [disk.size for disk in made],
            self.op.compress,
        )
        disk_transfer.copy_all(ctx, plan, left=state.filling, save=self._save_copy)
