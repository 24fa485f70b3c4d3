"""OP_GROUP_*: add, change, rename and remove node groups; assign nodes to one."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.base.net import netutils
from ganeti.base.text import messages
from ganeti.master.config import topology
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import Update, lookup
from ganeti.operations.base import LogicalUnit
from ganeti.operations.group.locks import instance_names
from ganeti.operations.parameters import policy, state_params, typed_params


def check_new_name(snapshot: objects.Snapshot, name: str) -> None:
    """Check a name for a group.

    Raises:
        OpPrereqError: it is in use, looks like a uuid, or has unprintable characters.
    """
    # Files on all nodes have one line per group.
    netutils.check_free_name(name, "node group")
    if (other := snapshot.uuid_of("nodegroups", name)) is not None:
        raise errors.OpPrereqError(
            f"node group {name}: already exists, with uuid {other}",
            ecodes.ECODE_EXISTS,
        )


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
        nodes = self.with_master(sorted(self.ctx.snapshot.nodes_in_group(self.uuid)))
        return nodes, nodes

    def check_prereq(self) -> None:
        """Check the new name."""
        check_new_name(self.ctx.snapshot, self.op.new_name)

    def execute(self) -> str:
        """Commit the name."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            group = edit.snapshot.nodegroups[self.uuid]
            edit.update(group.replace(name=self.op.new_name))
            # Group names are in ssconf, which is written when the cluster's serial
            # changes.
            edit.update_cluster()
        return self.op.new_name


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
            topology.remove_group(edit, self.uuid)


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

    def check_prereq(self) -> None:
        """Check the name."""
        check_new_name(self.ctx.snapshot, self.op.group_name)

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
            check_new_name(edit.snapshot, group.name)
            topology.add_group(edit, group)


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

    def declare_locks(self, level: Level) -> None:
        """Declare the current instances; they are checked once the group is locked."""
        if level is Level.INSTANCE:
            self.locks.names[level] = instance_names(self.ctx.snapshot, self.uuid)

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name and the allocation policy as requested."""
        return {
            "GROUP_NAME": self.op.group_name,
            "NEW_ALLOC_POLICY": self.op.alloc_policy,
        }

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

    def declare_locks(self, level: Level) -> None:
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
            topology.assign_nodes(edit, dict.fromkeys(self.nodes, self.group))


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
