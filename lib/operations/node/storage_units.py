"""Storage units and logical volumes of nodes: list, change and repair them."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar, Final, TypeVar

from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.base.text import nicesort
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit
from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.answers import BlockDevice

_STS_REPORT_NODE_STORAGE: Final = ("file", "gluster", "lvm-pv", "lvm-vg", "sharedfile")
_SO_FIX_CONSISTENCY: Final = "fix-consistency"
_Op = TypeVar("_Op", opcodes.NodeQueryStorage, opcodes.NodeQueryvols)
_MODIFIABLE_STORAGE_FIELDS: Final = {"lvm-pv": ["allocatable"]}

# The part that both listings share.


class _Listing(LogicalUnit[_Op]):
    """A unit that asks nodes and returns rows of the requested fields."""

    FIELDS: ClassVar[Collection[str]]
    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check the fields."""
        unknown = sorted(set(self.op.output_fields) - set(self.FIELDS))
        if unknown:
            raise self.prereq(f"unknown fields: {', '.join(unknown)}")

    def expand_names(self) -> None:
        """Lock the nodes, shared."""
        self.nodes = lookup.expand_nodes(self.ctx.snapshot, self.op.nodes)
        self.locks.names[Level.NODE] = self.nodes
        self.locks.shared.add(Level.NODE)


# OP_NODE_QUERY_STORAGE: storage units of nodes.

#: storage type -> cluster setting with the directory of its one unit
_DIRECTORIES: Final = {
    "file": "file_storage_dir",
    "sharedfile": "shared_file_storage_dir",
    "gluster": "gluster_storage_dir",
}
#: Templates that use LVM units.
_TEMPLATES: Final = {"lvm-vg": ("plain", "drbd"), "lvm-pv": ("plain", "drbd")}


def _first_listable(enabled: Sequence[str]) -> str:
    kinds = [
        disk_constants.MAP_DISK_TEMPLATE_STORAGE_TYPE[template] for template in enabled
    ]
    listable = [kind for kind in kinds if kind in _STS_REPORT_NODE_STORAGE]
    return (listable or kinds)[0]


class NodeQueryStorage(_Listing[opcodes.NodeQueryStorage]):
    """Unit that returns rows by node and unit, values in the order of the fields."""

    FIELDS = disk_constants.VALID_STORAGE_FIELDS

    def check_prereq(self) -> None:
        """Choose the storage type and check that it is in use and can be listed."""
        cluster = self.ctx.snapshot.cluster
        enabled = cluster.enabled_disk_templates
        self.kind: str = self.op.storage_type or _first_listable(enabled)
        if self.kind not in _STS_REPORT_NODE_STORAGE:
            raise self.prereq(f"storage of type {self.kind} cannot be listed")
        if not _is_used(self.kind, enabled):
            raise self.prereq(
                f"storage type {self.kind}: no enabled disk template uses it; enabled"
                f" are {', '.join(enabled)}"
            )

    def execute(self) -> list[list[Any]]:
        """Ask the nodes; skip those that fail with a warning."""
        fields = self.op.output_fields
        asked = list(dict.fromkeys(("name", *fields)))
        asked = [name for name in asked if name not in ("node", "type")]
        snapshot = self.ctx.snapshot
        answers = self.ctx.rpc.call_nodes(
            self.nodes,
            calls.storage_list(
                self.kind, _arguments(snapshot.cluster, self.kind), self.op.name, asked
            ),
        )
        rows: list[list[Any]] = []
        for uuid in self.nodes:
            answer = answers[uuid]
            if answer.offline:
                continue
            if self.ctx.warn_failed(answer, "cannot get storage data"):
                continue
            units = [dict(zip(asked, unit, strict=True)) for unit in answer.payload]
            for unit in sorted(units, key=lambda item: nicesort.key(str(item["name"]))):
                unit["node"], unit["type"] = snapshot.nodes[uuid].name, self.kind
                rows.append([unit[name] for name in fields])
        return rows


def _is_used(kind: str, enabled: tuple[str, ...]) -> bool:
    templates = _TEMPLATES.get(kind, (kind,))
    return any(name in enabled for name in templates)


def _arguments(cluster: objects.Cluster, kind: str) -> list[Any]:
    field = _DIRECTORIES.get(kind)
    return [[getattr(cluster, field)]] if field else []


# OP_NODE_QUERYVOLS: logical volumes of nodes, and their instances.

_FIELDS: Final = ("node", "phys", "vg", "name", "size", "instance")


class NodeQueryvols(_Listing[opcodes.NodeQueryvols]):
    """Unit that returns rows by node and device, texts in the order of the fields."""

    FIELDS = _FIELDS

    def execute(self) -> list[list[str]]:
        """Ask the nodes; skip those that fail with a warning."""
        snapshot = self.ctx.snapshot
        owners = dict(_volumes(snapshot))
        rows = []
        answers = self.ctx.rpc.call_nodes(self.nodes, calls.node_volumes())
        for uuid in self.nodes:
            answer = answers[uuid]
            if answer.offline:
                continue
            if self.ctx.warn_failed(answer, "cannot compute volume data"):
                continue
            for item in sorted(answer.payload, key=lambda row: str(row["dev"])):
                values = {
                    "node": snapshot.nodes[uuid].name,
                    "phys": item["dev"],
                    "vg": item["vg"],
                    "name": item["name"],
                    "size": int(float(item["size"] or 0)),
                    "instance": owners.get(
                        (uuid, str(item["vg"]), str(item["name"])), "-"
                    ),
                }
                rows.append([str(values[name]) for name in self.op.output_fields])
        return rows


def _volumes(
    snapshot: objects.Snapshot,
) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield (node uuid, volume group, volume) with the name of the instance."""
    for disk in snapshot.disks.values():
        owner = snapshot.disk_owner(disk.uuid)
        if owner is None:
            continue
        for part in (disk, *disk.children):
            if part.dev_type == "plain":
                group, name = part.logical_id[:2]
                for node in part.nodes or disk.nodes:
                    yield (node, group, name), snapshot.instances[owner].name


class NodeModifyStorage(LogicalUnit[opcodes.NodeModifyStorage]):
    """Unit that changes fields of a storage unit."""

    def check_arguments(self) -> None:
        """Check that the type has such fields."""
        op = self.op
        allowed = _MODIFIABLE_STORAGE_FIELDS.get(op.storage_type)
        if allowed is None:
            raise self.prereq(
                f"storage units of type {op.storage_type} cannot be modified, only"
                f" those of {', '.join(_MODIFIABLE_STORAGE_FIELDS)}"
            )
        if unknown := sorted(set(op.changes) - set(allowed)):
            raise self.prereq(
                f"storage type {op.storage_type}: {', '.join(unknown)} cannot be"
                f" modified, only {', '.join(allowed)}"
            )
        if not op.changes:
            raise self.prereq("no changes requested")
        if not op.name:
            raise self.prereq(f"storage type {op.storage_type}: no unit named")

    def expand_names(self) -> None:
        """Lock the node."""
        self.node = lookup.expand_node(self.ctx.snapshot, self.op.node_name)
        self.locks.names[Level.NODE] = [self.node]

    def execute(self) -> None:
        """Have the node change the unit."""
        op = self.op
        self.ctx.rpc.call_node(
            self.node, calls.storage_modify(op.storage_type, [], op.name, op.changes)
        ).unwrap(f"cannot modify storage unit {op.name}")


class RepairNodeStorage(LogicalUnit[opcodes.RepairNodeStorage]):
    """Unit that takes what is missing out of a storage unit.

    The data on it is lost there. So before, the other nodes of each instance must have
    theirs.
    """

    def check_arguments(self) -> None:
        """Check that the type can be repaired."""
        op = self.op
        offered = disk_constants.VALID_STORAGE_OPERATIONS.get(op.storage_type, ())
        if _SO_FIX_CONSISTENCY not in offered:
            raise self.prereq(
                f"storage units of type {op.storage_type} cannot be repaired, only"
                f" those of {', '.join(disk_constants.VALID_STORAGE_OPERATIONS)}"
            )
        if not op.name:
            raise self.prereq(f"storage type {op.storage_type}: no unit named")

    def expand_names(self) -> None:
        """Lock the node."""
        self.node = lookup.expand_node(self.ctx.snapshot, self.op.node_name)
        self.locks.names[Level.NODE] = [self.node]

    def check_prereq(self) -> None:
        """Refuse while another node of an instance has a faulty disk."""
        snapshot = self.ctx.snapshot
        users = snapshot.primary_instances(self.node) | snapshot.secondary_instances(
            self.node
        )
        for uuid in sorted(users):
            instance = snapshot.instances[uuid]
            if instance.disks_active:
                self._check_others(instance)

    def _check_others(self, instance: objects.Instance) -> None:
        snapshot = self.ctx.snapshot
        disks = snapshot.instance_disks(instance)
        others = {
            node for disk in disks for node in (*disk.nodes, instance.primary_node)
        }
        for node in sorted(others - {self.node}):
            problem = self._faulty(instance, node, disks)
            if not problem:
                continue
            text = (
                f"instance {instance.name}: {problem}; a repair on"
                f" {snapshot.nodes[self.node].name} could lose its last good copy"
            )
            if not self.op.ignore_consistency:
                raise self.prereq(text, ecodes.ECODE_STATE)
            self.ctx.log.warn(text)

    def _faulty(
        self, instance: objects.Instance, node: str, disks: Sequence[objects.Disk]
    ) -> str:
        """Return why a node's disks of an instance cannot be relied on, or nothing."""
        snapshot = self.ctx.snapshot
        name = snapshot.nodes[node].name
        wires = [encode.disk(snapshot, disk, instance) for disk in disks]
        answer = self.ctx.rpc.call_node(
            node, calls.blockdev_getmirrorstatus_multi(wires)
        )
        if answer.failed:
            return answer.describe(f"the disks on node {name} cannot be examined")
        for disk, (is_fine, status) in zip(disks, answer.payload, strict=True):
            if not is_fine:
                return f"{disk.iv_name} on node {name}: {status}"
            level = status.ldisk_status if isinstance(status, BlockDevice) else None
            if level == disk_constants.LDS_FAULTY:
                return f"{disk.iv_name} on node {name} is faulty"
            if status is None or level not in (None, disk_constants.LDS_OK):
                # Being synchronised, inactive, or without volumes.
                return f"{disk.iv_name} on node {name} is no complete copy"
        return ""

    def execute(self) -> None:
        """Have the node repair the unit."""
        op = self.op
        name = self.ctx.snapshot.nodes[self.node].name
        self.ctx.log.message(f"Repairing storage unit '{op.name}' on {name} ...")
        self.ctx.rpc.call_node(
            self.node,
            calls.storage_execute(op.storage_type, [], op.name, _SO_FIX_CONSISTENCY),
        ).unwrap(f"cannot repair storage unit {op.name}")
