"""Addresses of NICs in the pools of their networks; pure."""

from collections.abc import Sequence

from ganeti.base import errors
from ganeti.master.config.address_pool import AddressPool
from ganeti.model.objects import Network, Nic, Snapshot


def move_addresses(
    snapshot: Snapshot, old: Sequence[Nic], new: Sequence[Nic]
) -> list[Network]:
    """Return the networks whose pools change when NICs are replaced.

    Raises:
        AddressPoolError: another instance has a new address.
    """
    before, after = _addresses(old), _addresses(new)
    pools: dict[str, AddressPool] = {}
    for network, address in sorted(before - after):
        if network in snapshot.networks:
            pool = pools.setdefault(network, AddressPool(snapshot.networks[network]))
            if pool.contains(address) and pool.is_used(address):
                pool.release(address)
    for network, address in sorted(after - before):
        if network not in snapshot.networks:
            raise errors.ConfigurationError(f"network {network} does not exist")
        pools.setdefault(network, AddressPool(snapshot.networks[network])).use(address)
    return [pool.result() for pool in pools.values()]


def _addresses(nics: Sequence[Nic]) -> set[tuple[str, str]]:
    return {(nic.network, nic.ip) for nic in nics if nic.network and nic.ip}
