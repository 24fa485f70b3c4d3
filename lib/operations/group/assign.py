"""OP_GROUP_ASSIGN_NODES: move nodes into a group."""

from collections.abc import Mapping

from ganeti.base.constants import ecodes
from ganeti.master import locking
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit


class GroupAssignNodes(LogicalUnit[opcodes.GroupAssignNodes]):
    """Unit that moves nodes, unless that splits mirrored instances."""

    def expand_names(self) -> None:
        """Lock the nodes and all affected groups."""
        snapshot = self.ctx.snapshot
        self.group = lookup.expand_group(snapshot, self.op.group_name)
        self.nodes = sorted(
            {lookup.expand_node(snapshot, name) for name in self.op.nodes}
        )
        if not self.nodes:
            raise self.prereq(
                f"node group {self.op.group_name}: no nodes to move were given"
            )
        self.locks.names[Level.NODEGROUP] = []
        self.locks.names[Level.NODE] = self.nodes

    def declare_locks(self, level: locking.Level) -> None:
        """Declare the nodes' current groups; checked once they are locked."""
        if level is Level.NODEGROUP:
            self.locks.names[level] = self._groups()

    def _groups(self) -> list[str]:
        nodes = self.ctx.snapshot.nodes
        return sorted({self.group} | {nodes[u].group for u in self.nodes if u in nodes})

    def check_prereq(self) -> None:
        """Check that no node moved, and which instances the move would split."""
        snapshot = self.ctx.snapshot
        if self.group not in snapshot.nodegroups or any(
            uuid not in snapshot.nodes for uuid in self.nodes
        ):
            raise self.prereq(
                f"node group {self.op.group_name}: group or nodes were removed while"
                " the job waited for locks",
                ecodes.ECODE_NOENT,
            )
        if set(self._groups()) - self.ctx.locks.owned(Level.NODEGROUP):
            raise self.prereq(
                "nodes changed their group while the job waited for locks, retry",
                ecodes.ECODE_STATE,
            )
        new, old = splits(snapshot, dict.fromkeys(self.nodes, self.group))
        if new:
            text = (
                "The following instances would be split over two groups:"
                f" {', '.join(new)}"
            )
            if not self.op.force:
                raise self.prereq(text, ecodes.ECODE_STATE)
            self.ctx.log.warn(text)
        if old:
            self.ctx.log.info(
                "These instances were split over two groups before and stay so: "
                + ", ".join(old)
            )

    def execute(self) -> None:
        """Move them."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.assign_nodes(dict.fromkeys(self.nodes, self.group))


def splits(
    snapshot: objects.Snapshot, moves: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the mirrored instances that a move splits, and those split before.

    Args:
        snapshot: the configuration.
        moves: node uuid -> group uuid.
    """
    new: list[str] = []
    old: list[str] = []
    uuids = {
        uuid
        for node in moves
        for uuid in (
            *snapshot.primary_instances(node),
            *snapshot.secondary_instances(node),
        )
    }
    for uuid in uuids:
        instance = snapshot.instances[uuid]
        nodes = snapshot.instance_nodes(instance)
        before = {snapshot.nodes[node].group for node in nodes}
        after = {moves.get(node, snapshot.nodes[node].group) for node in nodes}
        if len(after) > 1:
            (old if len(before) > 1 else new).append(instance.name)
    return sorted(new), sorted(old)
