"""OP_NETWORK_*: add, change, rename and remove networks; connect them to groups."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.master.config import topology
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import tag_units
from ganeti.operations.base import ALL, Feedback, LogicalUnit
from ganeti.operations.group import locks
from ganeti.operations.network import pools, values
from ganeti.operations.parameters import device_params, typed_params


def network_env(network: objects.Network) -> dict[str, Any]:
    """Return the variables of a network; those without a value are left out."""
    values = {
        "NETWORK_NAME": network.name,
        "NETWORK_SUBNET": network.network,
        "NETWORK_GATEWAY": network.gateway,
        "NETWORK_SUBNET6": network.network6,
        "NETWORK_GATEWAY6": network.gateway6,
        "NETWORK_MAC_PREFIX": network.mac_prefix,
        "NETWORK_TAGS": " ".join(sorted(network.tags)),
    }
    return {name: value for name, value in values.items() if value}


def connection_env(group: str, connection: dict[str, Any] | None) -> dict[str, Any]:
    """Return the variables of a connection, or of none, to a group of this name."""
    env = {"GROUP_NAME": group}
    if connection is not None:
        for key in ("mode", "link", "vlan"):
            env[f"GROUP_NETWORK_{key.upper()}"] = connection.get(key, "")
    return env


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
            for group in values.connected_groups(snapshot, self.uuid)
            for node in snapshot.nodes_in_group(group.uuid)
        }
        nodes = self.with_master(sorted(members))
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


class NetworkRemove(LogicalUnit[opcodes.NetworkRemove]):
    """Unit that deletes a network that no group is connected to.

    ``force`` is accepted for scripts and skips nothing: a NIC without its network would
    make the configuration inconsistent.
    """

    HOOKS_PATH: ClassVar[str | None] = "network-remove"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    def expand_names(self) -> None:
        """Lock the network, and all groups, so that none gets connected."""
        snapshot = self.ctx.snapshot
        self.uuid = lookup.expand_network(snapshot, self.op.network_name)
        self.name = snapshot.networks[self.uuid].name
        self.locks.names[Level.NETWORK] = [self.uuid]
        self.locks.names[Level.NODEGROUP] = ALL
        self.locks.shared.add(Level.NODEGROUP)

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name."""
        return {"NETWORK_NAME": self.name}

    def check_prereq(self) -> None:
        """Check that no group and no instance uses the network."""
        values.check_unused(self.ctx.snapshot, self.uuid)

    def execute(self) -> None:
        """Delete the network."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            values.check_unused(edit.snapshot, self.uuid)
            topology.remove_network(edit, self.uuid)


class NetworkAdd(LogicalUnit[opcodes.NetworkAdd]):
    """Unit that creates a network with its address pool, connected to no group."""

    HOOKS_PATH: ClassVar[str | None] = "network-add"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    network: objects.Network

    def check_arguments(self) -> None:
        """Check all values and build the record."""
        op, name = self.op, self.op.network_name
        tag_units.check_count(len(set(op.tags)))
        for tag in op.tags:
            tag_units.check_tag(tag)
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

    def declare_locks(self, level: Level) -> None:
        """Lock the nodes with an address in the network."""
        if level is Level.NODE and self.op.conflicts_check:
            self.locks.names[level] = pools.hosts_inside(
                self.ctx.snapshot, self.network
            )

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the values of the network."""
        return network_env(self.network)

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
            topology.add_network(edit, network)


class NetworkSetParams(LogicalUnit[opcodes.NetworkSetParams]):
    """Unit that changes gateways, IPv6 range, prefix and reserved addresses.

    The text ``none`` removes a value.
    """

    HOOKS_PATH: ClassVar[str | None] = "network-modify"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    uuid: str
    changed: objects.Network

    def check_arguments(self) -> None:
        """Refuse changes that exclude each other, and no change at all."""
        op, what = self.op, f"network {self.op.network_name}"
        reserved = bool(op.add_reserved_ips or op.remove_reserved_ips)
        if op.gateway is not None and reserved:
            raise self.prereq(
                f"{what}: the gateway and reserved addresses cannot change together"
            )
        given = (op.gateway, op.gateway6, op.network6, op.mac_prefix)
        if not reserved and all(value is None for value in given):
            raise self.prereq(f"{what}: no changes given")
        both = sorted(
            {*(op.add_reserved_ips or ())} & {*(op.remove_reserved_ips or ())}
        )
        if both:
            raise self.prereq(
                f"{what}: {', '.join(both)} cannot be reserved and released together"
            )

    def expand_names(self) -> None:
        """Lock the network."""
        self.uuid = lookup.expand_network(self.ctx.snapshot, self.op.network_name)
        self.locks.names[Level.NETWORK] = [self.uuid]

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the values after the change, in both phases."""
        return network_env(self.changed)

    def check_prereq(self) -> None:
        """Compute the network after the change; keep new addresses from other jobs."""
        network = self.ctx.snapshot.networks[self.uuid]
        self._parse_addresses(network)
        self.changed = self._change(network, self.ctx.log)
        self._hold_addresses(network)

    def _parse_addresses(self, network: objects.Network) -> None:
        op, name = self.op, network.name
        values.ipv4_range(network.network, name)
        self.gateway = network.gateway
        if op.gateway is not None:
            is_none = op.gateway == typed_params.NONE
            self.gateway = (
                None if is_none else values.ipv4_host(op.gateway, network, "gateway")
            )
        self.add, self.remove = (
            [values.ipv4_inside(text, network, "reserved address") for text in given]
            for given in (op.add_reserved_ips or (), op.remove_reserved_ips or ())
        )

    def _hold_addresses(self, network: objects.Network) -> None:
        """Reserve the addresses until they are written.

        Raises:
            OpPrereqError: another job is about to give one to an instance.
        """
        before = pools.reserved(network)
        for address in sorted(pools.reserved(self.changed) - before):
            try:
                self.ctx.config.reserve_ip(
                    self.ctx.owner, self.uuid, address, check=False
                )
            except errors.ReservationError as err:
                raise values.refuse(
                    network.name, str(err.args[0]), ecodes.ECODE_NOTUNIQUE
                ) from err

    def _change(
        self, network: objects.Network, log: Feedback | None = None
    ) -> objects.Network:
        op = self.op
        network = pools.change_gateway(network, self.gateway)
        network = pools.change_reserved(network, self.add, self.remove, log)
        given = {"network6": op.network6, "gateway6": op.gateway6}
        changes = {
            key: None if value == typed_params.NONE else value
            for key, value in given.items()
            if value is not None
        }
        if changes:
            network = values.ipv6(network.replace(**changes))
        if op.mac_prefix is not None:
            is_none = op.mac_prefix.lower() == typed_params.NONE
            prefix = None if is_none else values.mac_prefix(op.mac_prefix, network.name)
            network = network.replace(mac_prefix=prefix)
        return network

    def execute(self) -> None:
        """Apply the change to the network as it is now, and commit it."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update(self._change(edit.snapshot.networks[self.uuid]))


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
        return connection_env(self.before.name, connection)

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
        values.check_unused_in_group(snapshot, self.network, self.group)

    def execute(self) -> None:
        """Commit the end of the connection."""
        if self.network not in self.before.networks:
            return
        with self.ctx.config.edit(self.ctx.owner) as edit:
            values.check_unused_in_group(edit.snapshot, self.network, self.group)
            group: objects.NodeGroup = edit.snapshot.nodegroups[self.group]
            networks = {
                uuid: connection
                for uuid, connection in group.networks.items()
                if uuid != self.network
            }
            edit.update(group.replace(networks=networks))


class NetworkConnect(LogicalUnit[opcodes.NetworkConnect]):
    """Unit that stores how NICs of a network are connected in a group."""

    HOOKS_PATH: ClassVar[str | None] = "network-connect"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    group: str
    network: str

    def check_arguments(self) -> None:
        """Check mode, link and VLAN."""
        op = self.op
        self.connection = device_params.connection(
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
        return connection_env(name, self.connection)

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
            values.check_conflicts(snapshot, self.network, self.group)

    def execute(self) -> None:
        """Commit the connection; an existing one stays as it is."""
        if self.is_connected:
            return
        with self.ctx.config.edit(self.ctx.owner) as edit:
            if self.op.conflicts_check:
                values.check_conflicts(edit.snapshot, self.network, self.group)
            group: objects.NodeGroup = edit.snapshot.nodegroups[self.group]
            networks = {**group.networks, self.network: self.connection}
            edit.update(group.replace(networks=networks))
