"""OP_NODE_QUERYVOLS: logical volumes of nodes, and their instances."""

from collections.abc import Iterator
from typing import Final

from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit

_FIELDS: Final = ("node", "phys", "vg", "name", "size", "instance")


class NodeQueryvols(LogicalUnit[opcodes.NodeQueryvols]):
    """Unit that returns rows by node and device, texts in the order of the fields."""

    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check the fields."""
        unknown = sorted(set(self.op.output_fields) - set(_FIELDS))
        if unknown:
            raise self.prereq(f"unknown fields: {', '.join(unknown)}")

    def expand_names(self) -> None:
        """Lock the nodes, shared."""
        self.nodes = lookup.expand_nodes(self.ctx.snapshot, self.op.nodes)
        self.locks.names[Level.NODE] = self.nodes
        self.locks.shared.add(Level.NODE)

    def execute(self) -> list[list[str]]:
        """Ask the nodes; skip those that fail with a warning."""
        snapshot = self.ctx.snapshot
        owners = dict(_volumes(snapshot))
        rows = []
        answers = self.ctx.rpc.call("node_volumes", self.nodes)
        for uuid in self.nodes:
            answer = answers[uuid]
            if answer.offline:
                continue
            if answer.failed:
                self.ctx.log.warn(answer.describe("cannot compute volume data"))
                continue
            for item in sorted(answer.payload, key=lambda row: str(row["dev"])):
                values = {
                    "node": snapshot.nodes[uuid].name,
                    "phys": item["dev"],
                    "vg": item["vg"],
                    "name": item["name"],
                    "size": int(float(item["size"])),
                    "instance": owners.get((uuid, item["vg"], item["name"]), "-"),
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
