"""OP_NETWORK_CONNECT: let instances of a node group use a network."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit
from ganeti.operations.group import locks
from ganeti.operations.network import hook_env, usage
from ganeti.operations.parameters import nic_params


class NetworkConnect(LogicalUnit[opcodes.NetworkConnect]):
    """Unit that stores how NICs of a network are connected in a group."""

    HOOKS_PATH: ClassVar[str | None] = "network-connect"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    group: str
    network: str

    def check_arguments(self) -> None:
        """Check mode, link and VLAN."""
        op = self.op
        self.connection = nic_params.connection(
            op.network_mode,
            op.network_link,
            op.network_vlan,
            f"network {op.network_name}",
        )

    def expand_names(self) -> None:
        """Lock group and network, and the instances whose addresses count."""
        snapshot = self.ctx.snapshot
        self.network = lookup.expand_network(snapshot, self.op.network_name)
        self.group = lookup.expand_group(snapshot, self.op.group_name)
        self.locks.names[Level.NODEGROUP] = [self.group]
        self.locks.names[Level.NETWORK] = [self.network]
        self.locks.shared.add(Level.NETWORK)
        if self.op.conflicts_check:
            self.locks.names[Level.INSTANCE] = locks.instance_names(
                snapshot, self.group
            )
            self.locks.shared.add(Level.INSTANCE)
            self.locks.without_removed.add(Level.INSTANCE)

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name of the group, and the connection."""
        name = self.ctx.snapshot.nodegroups[self.group].name
        return hook_env.connection_env(name, self.connection)

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the nodes of the group, for both phases."""
        members = sorted(self.ctx.snapshot.nodes_in_group(self.group))
        return members, members

    def check_prereq(self) -> None:
        """Check that no NIC has an address of the network already."""
        snapshot = self.ctx.snapshot
        self.is_connected = self.network in snapshot.nodegroups[self.group].networks
        if self.is_connected:
            self.ctx.log.warn(
                f"network {snapshot.networks[self.network].name} is already connected"
                f" to node group {snapshot.nodegroups[self.group].name}"
            )
        elif self.op.conflicts_check:
            usage.check_conflicts(snapshot, self.network, self.group)

    def execute(self) -> None:
        """Commit the connection; an existing one stays as it is."""
        if self.is_connected:
            return
        with self.ctx.config.edit(self.ctx.owner) as edit:
            if self.op.conflicts_check:
                usage.check_conflicts(edit.snapshot, self.network, self.group)
            group: objects.NodeGroup = edit.snapshot.nodegroups[self.group]
            networks = {**group.networks, self.network: self.connection}
            edit.update(group.replace(networks=networks))
