"""OP_NODE_QUERY_STORAGE: storage units of nodes."""

from collections.abc import Sequence
from typing import Any, Final

from ganeti.base.constants import disks, ecodes, storage
from ganeti.base.text import nicesort
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit

#: storage type -> cluster setting with the directory of its one unit
_DIRECTORIES: Final = {
    "file": "file_storage_dir",
    "sharedfile": "shared_file_storage_dir",
    "gluster": "gluster_storage_dir",
}
#: Templates that use LVM units.
_TEMPLATES: Final = {"lvm-vg": ("plain", "drbd"), "lvm-pv": ("plain", "drbd")}


def _first_listable(enabled: Sequence[str]) -> str:
    kinds = [disks.MAP_DISK_TEMPLATE_STORAGE_TYPE[template] for template in enabled]
    listable = [kind for kind in kinds if kind in storage.STS_REPORT_NODE_STORAGE]
    return (listable or kinds)[0]


class NodeQueryStorage(LogicalUnit[opcodes.NodeQueryStorage]):
    """Unit that returns rows by node and unit, values in the order of the fields."""

    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check the fields."""
        unknown = sorted(set(self.op.output_fields) - set(storage.VALID_STORAGE_FIELDS))
        if unknown:
            raise self.prereq(f"unknown fields: {', '.join(unknown)}")

    def expand_names(self) -> None:
        """Lock the nodes, shared."""
        self.nodes = lookup.expand_nodes(self.ctx.snapshot, self.op.nodes)
        self.locks.names[Level.NODE] = self.nodes
        self.locks.shared.add(Level.NODE)

    def check_prereq(self) -> None:
        """Choose the storage type and check that it is in use and can be listed."""
        cluster = self.ctx.snapshot.cluster
        enabled = cluster.enabled_disk_templates
        self.kind: str = self.op.storage_type or _first_listable(enabled)
        if self.kind not in storage.STS_REPORT_NODE_STORAGE:
            raise self.prereq(f"storage of type {self.kind} cannot be listed")
        if not _is_used(self.kind, enabled):
            raise self.prereq(
                f"storage type {self.kind}: no enabled disk template uses it; enabled"
                f" are {', '.join(enabled)}",
                ecodes.ECODE_INVAL,
            )

    def execute(self) -> list[list[Any]]:
        """Ask the nodes; skip those that fail with a warning."""
        fields = self.op.output_fields
        asked = list(dict.fromkeys(("name", *fields)))
        asked = [name for name in asked if name not in ("node", "type")]
        snapshot = self.ctx.snapshot
        answers = self.ctx.rpc.call(
            "storage_list",
            self.nodes,
            (self.kind, _arguments(snapshot.cluster, self.kind), self.op.name, asked),
        )
        rows: list[list[Any]] = []
        for uuid in self.nodes:
            answer = answers[uuid]
            if answer.offline:
                continue
            if answer.failed:
                self.ctx.log.warn(answer.describe("cannot get storage data"))
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
