"""OP_NETWORK_SET_PARAMS: change a network."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import base
from ganeti.operations.network import hook_env, pools, values
from ganeti.operations.parameters import typed_params


class NetworkSetParams(base.LogicalUnit[opcodes.NetworkSetParams]):
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
        return hook_env.network_env(self.changed)

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        master = (self.ctx.snapshot.cluster.master_node,)
        return master, master

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
        self, network: objects.Network, log: base.Feedback | None = None
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
