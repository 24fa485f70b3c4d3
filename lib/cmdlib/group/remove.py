"""OP_GROUP_REMOVE: delete an empty node group."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import opcodes
from ganeti.cmdlib.base import LogicalUnit
from ganeti.constants import ecodes, hooks
from ganeti.locking import Level
from ganeti.objects import lookup
from ganeti.utils import messages


class GroupRemove(LogicalUnit[opcodes.GroupRemove]):
    """Deletes a group that is empty and not the last one."""

    HOOKS_PATH = "group-remove"
    HOOKS_TYPE = hooks.HTYPE_GROUP

    def expand_names(self) -> None:
        """Lock the group."""
        self.uuid = lookup.expand_group(self.ctx.snapshot, self.op.group_name)
        self.locks.names[Level.NODEGROUP] = [self.uuid]

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name as given."""
        return {"GROUP_NAME": self.op.group_name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """The master, both times."""
        master = (self.ctx.snapshot.cluster.master_node,)
        return master, master

    def check_prereq(self) -> None:
        """Check that nothing needs it."""
        snapshot = self.ctx.snapshot
        if members := snapshot.nodes_in_group(self.uuid):
            names = messages.some(snapshot.nodes[uuid].name for uuid in members)
            raise self.prereq(
                f"node group {self.op.group_name}: not empty, found {names}",
                ecodes.ECODE_STATE,
            )
        if len(snapshot.nodegroups) == 1:
            raise self.prereq(
                f"node group {self.op.group_name}: the only one, it must stay",
                ecodes.ECODE_STATE,
            )

    def execute(self) -> None:
        """Delete it."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.remove_group(self.uuid)
