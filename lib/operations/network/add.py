"""OP_NETWORK_ADD: create a network."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ganeti.base.constants.protocols import hooks
from ganeti.master import locking
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.operations.base import LogicalUnit
from ganeti.operations.network import hook_env, pools, values
from ganeti.operations.tags import target


class NetworkAdd(LogicalUnit[opcodes.NetworkAdd]):
    """Unit that creates a network with its address pool, connected to no group."""

    HOOKS_PATH: ClassVar[str | None] = "network-add"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    network: objects.Network

    def check_arguments(self) -> None:
        """Check all values and build the record."""
        op, name = self.op, self.op.network_name
        target.check_count(len(set(op.tags)))
        for tag in op.tags:
            target.check_tag(tag)
        network = objects.Network(
            name=name,
            network=str(values.ipv4_range(op.network, name)),
            uuid="",
            serial_no=1,
            network6=op.network6,
            gateway6=op.gateway6,
            tags=tuple(sorted(set(op.tags))),
        )
        network = values.ipv6(network)
        if op.gateway is not None:
            gateway = values.ipv4_host(op.gateway, network, "gateway")
            network = network.replace(gateway=gateway)
        if op.mac_prefix is not None:
            prefix = values.mac_prefix(op.mac_prefix, name)
            network = network.replace(mac_prefix=prefix)
        self.network = pools.new_pool(network, op.add_reserved_ips or ())

    def expand_names(self) -> None:
        """Create the lock of the new network; lock the nodes whose addresses count."""
        uuid = self.ctx.config.reserve_uuid(self.ctx.owner)
        self.network = self.network.replace(uuid=uuid)
        self.locks.add[Level.NETWORK] = [uuid]
        if self.op.conflicts_check:
            self.locks.names[Level.NODE] = []
            self.locks.shared.add(Level.NODE)
            self.locks.without_removed.add(Level.NODE)

    def declare_locks(self, level: locking.Level) -> None:
        """Lock the nodes with an address in the network."""
        if level is Level.NODE and self.op.conflicts_check:
            self.locks.names[level] = pools.hosts_inside(
                self.ctx.snapshot, self.network
            )

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the values of the network."""
        return hook_env.network_env(self.network)

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        master = (self.ctx.snapshot.cluster.master_node,)
        return master, master

    def check_prereq(self) -> None:
        """Check the name."""
        values.check_new_name(self.ctx.snapshot, self.op.network_name)

    def execute(self) -> None:
        """Commit the network, with the addresses of cluster and nodes reserved."""
        network = self.network
        if self.op.conflicts_check:
            network = pools.with_hosts(network, self.ctx.snapshot, self.ctx.log)
        with self.ctx.config.edit(self.ctx.owner) as edit:
            values.check_new_name(edit.snapshot, network.name)
            edit.add_network(network)
