"""OP_GROUP_ADD: create a node group."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.operations.base import LogicalUnit
from ganeti.operations.group import names
from ganeti.operations.parameters import policy, state_params, typed_params


class GroupAdd(LogicalUnit[opcodes.GroupAdd]):
    """Unit that creates an empty group."""

    HOOKS_PATH = "group-add"
    HOOKS_TYPE = hooks.HTYPE_GROUP

    def check_arguments(self) -> None:
        """Check parameters and policy."""
        given = self.op
        self.ndparams = typed_params.node(given.ndparams or {})
        self.ipolicy = policy.new_policy({}, given.ipolicy, for_group=True)
        self.diskparams = policy.new_disk_parameters(
            {}, given.diskparams, inherited=self.ctx.snapshot.cluster.diskparams
        )
        self.hv_state = state_params.new_hv_state({}, given.hv_state)
        self.disk_state = state_params.new_disk_state({}, given.disk_state)

    def expand_names(self) -> None:
        """Create the lock of the new group."""
        self.uuid = self.ctx.config.reserve_uuid(self.ctx.owner)
        self.locks.add[Level.NODEGROUP] = [self.uuid]

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name."""
        return {"GROUP_NAME": self.op.group_name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        master = (self.ctx.snapshot.cluster.master_node,)
        return master, master

    def check_prereq(self) -> None:
        """Check the name."""
        names.check_new_name(self.ctx.snapshot, self.op.group_name)

    def execute(self) -> None:
        """Commit the group."""
        group = objects.NodeGroup(
            name=self.op.group_name,
            ndparams=self.ndparams,
            alloc_policy=self.op.alloc_policy or "preferred",
            ipolicy=self.ipolicy,
            diskparams=self.diskparams,
            networks={},
            uuid=self.uuid,
            serial_no=1,
            hv_state_static=self.hv_state,
            disk_state_static=self.disk_state,
        )
        with self.ctx.config.edit(self.ctx.owner) as edit:
            names.check_new_name(edit.snapshot, group.name)
            edit.add_group(group)
