"""OP_GROUP_SET_PARAMS: policy and parameters of a node group."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.base.text import messages
from ganeti.master import locking
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import Update, lookup
from ganeti.operations.base import LogicalUnit
from ganeti.operations.group.locks import instance_names
from ganeti.operations.parameters import policy, state_params, typed_params


class GroupSetParams(LogicalUnit[opcodes.GroupSetParams]):
    """Unit that changes a group; the result lists [what, new value]."""

    HOOKS_PATH = "group-modify"
    HOOKS_TYPE = hooks.HTYPE_GROUP

    def check_arguments(self) -> None:
        """Check that there is a change."""
        given = self.op
        if not any(
            value is not None
            for value in (
                given.alloc_policy,
                given.ndparams,
                given.diskparams,
                given.ipolicy,
                given.hv_state,
                given.disk_state,
            )
        ):
            raise self.prereq(f"node group {given.group_name}: no changes requested")
        self.ndparams = typed_params.node(given.ndparams or {}, allow_default=True)

    def expand_names(self) -> None:
        """Lock the group, and its instances shared."""
        self.uuid = lookup.expand_group(self.ctx.snapshot, self.op.group_name)
        self.locks.names[Level.NODEGROUP] = [self.uuid]
        self.locks.names[Level.INSTANCE] = []
        self.locks.shared.add(Level.INSTANCE)

    def declare_locks(self, level: locking.Level) -> None:
        """Declare the current instances; they are checked once the group is locked."""
        if level is Level.INSTANCE:
            self.locks.names[level] = instance_names(self.ctx.snapshot, self.uuid)

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name and the allocation policy as requested."""
        return {
            "GROUP_NAME": self.op.group_name,
            "NEW_ALLOC_POLICY": self.op.alloc_policy,
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        master = (self.ctx.snapshot.cluster.master_node,)
        return master, master

    def check_prereq(self) -> None:
        """Compute the new record."""
        snapshot = self.ctx.snapshot
        group = snapshot.nodegroups.get(self.uuid)
        if group is None:
            raise self.prereq(
                f"node group {self.op.group_name}: was removed while the job waited"
                " for locks",
                ecodes.ECODE_NOENT,
            )
        arrived = set(instance_names(snapshot, self.uuid)) - self.ctx.locks.owned(
            Level.INSTANCE
        )
        if arrived:
            raise self.prereq(
                f"node group {group.name}: instances {messages.some(arrived)}"
                " were added while the job waited for locks, retry",
                ecodes.ECODE_STATE,
            )
        self.group = group.replace(
            alloc_policy=self.op.alloc_policy or group.alloc_policy,
            ndparams=typed_params.merge(group.ndparams, self.ndparams),
            diskparams=policy.new_disk_parameters(
                group.diskparams,
                self.op.diskparams,
                inherited=self.ctx.snapshot.cluster.diskparams,
            ),
            ipolicy=policy.new_policy(group.ipolicy, self.op.ipolicy, for_group=True),
            hv_state_static=state_params.new_hv_state(
                group.hv_state_static, self.op.hv_state
            ),
            disk_state_static=state_params.new_disk_state(
                group.disk_state_static, self.op.disk_state
            ),
        )
        self._warn_of_violations()

    def _warn_of_violations(self) -> None:
        if not self.op.ipolicy:
            return
        before = self.ctx.snapshot
        after = before.apply([Update("nodegroups", self.uuid, self.group)])
        inside = [
            uuid
            for node in before.nodes_in_group(self.uuid)
            for uuid in before.primary_instances(node)
        ]
        if broken := policy.new_violations(before, after, inside):
            self.ctx.log.warn(
                "After the ipolicy change the following instances violate it: "
                + ", ".join(broken)
            )

    def execute(self) -> list[tuple[str, Any]]:
        """Commit the group."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update(self.group)
        rows: list[tuple[str, Any]] = []
        if self.op.ndparams:
            rows.append(("ndparams", self.group.ndparams))
        if self.op.diskparams:
            rows.append(("diskparams", self.group.diskparams))
        if self.op.alloc_policy:
            rows.append(("alloc_policy", self.group.alloc_policy))
        if self.op.ipolicy:
            rows.append(("ipolicy", self.group.ipolicy))
        if self.op.hv_state:
            rows.append(("hv_state", self.group.hv_state_static))
        if self.op.disk_state:
            rows.append(("disk_state", self.group.disk_state_static))
        return rows
