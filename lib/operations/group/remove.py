"""OP_GROUP_REMOVE: delete an empty node group."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.base.text import messages
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit


class GroupRemove(LogicalUnit[opcodes.GroupRemove]):
    """Unit that deletes a group that is empty and not the last one."""

    HOOKS_PATH = "group-remove"
    HOOKS_TYPE = hooks.HTYPE_GROUP

    def expand_names(self) -> None:
        """Lock the group."""
        self.uuid = lookup.expand_group(self.ctx.snapshot, self.op.group_name)
        self.locks.names[Level.NODEGROUP] = [self.uuid]

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name as requested."""
        return {"GROUP_NAME": self.op.group_name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        master = (self.ctx.snapshot.cluster.master_node,)
        return master, master

    def check_prereq(self) -> None:
        """Check that the group is empty and not the last one."""
        snapshot = self.ctx.snapshot
        if members := snapshot.nodes_in_group(self.uuid):
            names = messages.some(snapshot.nodes[uuid].name for uuid in members)
            raise self.prereq(
                f"node group {self.op.group_name}: not empty, found {names}",
                ecodes.ECODE_STATE,
            )
        if len(snapshot.nodegroups) == 1:
            raise self.prereq(
                f"node group {self.op.group_name}: is the only node group and cannot"
                " be removed",
                ecodes.ECODE_STATE,
            )

    def execute(self) -> None:
        """Delete the group."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.remove_group(self.uuid)
