"""OP_GROUP_RENAME: another name for a node group."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit
from ganeti.operations.group import names


class GroupRename(LogicalUnit[opcodes.GroupRename]):
    """Unit that renames a group; returns the new name."""

    HOOKS_PATH = "group-rename"
    HOOKS_TYPE = hooks.HTYPE_GROUP

    def expand_names(self) -> None:
        """Lock the group."""
        snapshot = self.ctx.snapshot
        self.uuid = lookup.expand_group(snapshot, self.op.group_name)
        self.old_name = snapshot.nodegroups[self.uuid].name
        self.locks.names[Level.NODEGROUP] = [self.uuid]

    def hooks_env(self) -> Mapping[str, Any]:
        """Return both names."""
        return {"OLD_NAME": self.old_name, "NEW_NAME": self.op.new_name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master and the members, for both phases."""
        snapshot = self.ctx.snapshot
        members = sorted(snapshot.nodes_in_group(self.uuid))
        nodes = list(dict.fromkeys((snapshot.cluster.master_node, *members)))
        return nodes, nodes

    def check_prereq(self) -> None:
        """Check the new name."""
        names.check_new_name(self.ctx.snapshot, self.op.new_name)

    def execute(self) -> str:
        """Commit the name."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            group = edit.snapshot.nodegroups[self.uuid]
            edit.update(group.replace(name=self.op.new_name))
            # Group names are in ssconf, which is written when the cluster's serial
            # changes.
            edit.update_cluster()
        return self.op.new_name
