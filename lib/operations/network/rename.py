"""OP_NETWORK_RENAME: another name for a network."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit
from ganeti.operations.network import usage, values


class NetworkRename(LogicalUnit[opcodes.NetworkRename]):
    """Unit that renames a network; returns the new name."""

    HOOKS_PATH: ClassVar[str | None] = "network-rename"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    def expand_names(self) -> None:
        """Lock the network."""
        snapshot = self.ctx.snapshot
        self.uuid = lookup.expand_network(snapshot, self.op.network_name)
        self.old_name = snapshot.networks[self.uuid].name
        self.locks.names[Level.NETWORK] = [self.uuid]

    def hooks_env(self) -> Mapping[str, Any]:
        """Return both names."""
        return {"OLD_NAME": self.old_name, "NEW_NAME": self.op.new_name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master and the nodes of all connected groups, for both phases."""
        snapshot = self.ctx.snapshot
        members = {
            node
            for group in usage.connected_groups(snapshot, self.uuid)
            for node in snapshot.nodes_in_group(group.uuid)
        }
        master = snapshot.cluster.master_node
        nodes = list(dict.fromkeys((master, *sorted(members))))
        return nodes, nodes

    def check_prereq(self) -> None:
        """Check the new name."""
        values.check_new_name(self.ctx.snapshot, self.op.new_name)

    def execute(self) -> str:
        """Commit the name."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            values.check_new_name(edit.snapshot, self.op.new_name)
            network = edit.snapshot.networks[self.uuid]
            edit.update(network.replace(name=self.op.new_name))
            # Names of networks are in ssconf, which is written when the cluster's
            # serial changes.
            edit.update_cluster()
        return self.op.new_name
