"""OP_NETWORK_DISCONNECT: end the connection of a network to a node group."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit
from ganeti.operations.group import locks
from ganeti.operations.network import hook_env, usage


class NetworkDisconnect(LogicalUnit[opcodes.NetworkDisconnect]):
    """Unit that removes a connection that no instance of the group uses."""

    HOOKS_PATH: ClassVar[str | None] = "network-disconnect"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    group: str
    network: str

    def expand_names(self) -> None:
        """Lock the group and its instances."""
        snapshot = self.ctx.snapshot
        self.network = lookup.expand_network(snapshot, self.op.network_name)
        self.group = lookup.expand_group(snapshot, self.op.group_name)
        self.before = snapshot.nodegroups[self.group]
        self.locks.names[Level.NODEGROUP] = [self.group]
        self.locks.names[Level.INSTANCE] = locks.instance_names(snapshot, self.group)
        self.locks.shared.add(Level.INSTANCE)
        self.locks.without_removed.add(Level.INSTANCE)

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name of the group, and the connection if there was one."""
        connection = self.before.networks.get(self.network)
        return hook_env.connection_env(self.before.name, connection)

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the nodes of the group, for both phases."""
        members = sorted(self.ctx.snapshot.nodes_in_group(self.group))
        return members, members

    def check_prereq(self) -> None:
        """Check that no instance of the group uses the network."""
        snapshot = self.ctx.snapshot
        self.before = snapshot.nodegroups[self.group]
        if self.network not in self.before.networks:
            network = snapshot.networks.get(self.network)
            self.ctx.log.warn(
                f"network {network.name if network else self.network} is not connected"
                f" to node group {self.before.name}"
            )
            return
        usage.check_unused_in_group(snapshot, self.network, self.group)

    def execute(self) -> None:
        """Commit the end of the connection."""
        if self.network not in self.before.networks:
            return
        with self.ctx.config.edit(self.ctx.owner) as edit:
            usage.check_unused_in_group(edit.snapshot, self.network, self.group)
            group: objects.NodeGroup = edit.snapshot.nodegroups[self.group]
            networks = {
                uuid: connection
                for uuid, connection in group.networks.items()
                if uuid != self.network
            }
            edit.update(group.replace(networks=networks))
