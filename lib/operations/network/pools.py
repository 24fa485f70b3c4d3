"""Addresses that administrators keep from instances: changes of a network's pool."""

from collections.abc import Iterable, Iterator

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.master import config
from ganeti.master.config.address_pool import AddressPool
from ganeti.model import objects
from ganeti.operations import base
from ganeti.operations.network import values


def new_pool(network: objects.Network, reserved: Iterable[str]) -> objects.Network:
    """Return a new network with the addresses that no instance gets.

    These are the first and the last address, the gateway and the given ones.

    Raises:
        OpPrereqError: an address is outside of the range.
    """
    pool = AddressPool.fresh(network)
    for text in reserved:
        address = values.ipv4_inside(text, network, "reserved address")
        if not pool.is_external(address):
            pool.reserve(address, external=True)
    return pool.result()


def with_hosts(
    network: objects.Network, snapshot: objects.Snapshot, log: base.Feedback
) -> objects.Network:
    """Return a new network with the addresses of cluster and nodes reserved."""
    pool = AddressPool(network)
    for address, who in _hosts(snapshot):
        if not pool.contains(address):
            continue
        if pool.is_external(address):
            log.warn(f"network {network.name}: {address} of {who} is already reserved")
            continue
        pool.reserve(address, external=True)
        log.info(f"network {network.name}: reserved {address} of {who}")
    return pool.result()


def _hosts(snapshot: objects.Snapshot) -> Iterator[tuple[str, str]]:
    yield snapshot.cluster.master_ip, "the cluster"
    for node in sorted(snapshot.nodes.values(), key=lambda node: node.name):
        yield node.primary_ip, f"node {node.name}"
        if node.secondary_ip != node.primary_ip:
            yield node.secondary_ip, f"node {node.name} (secondary)"


def unreserved_hosts(snapshot: objects.Snapshot) -> Iterator[str]:
    """Yield, as sentences, addresses of cluster and nodes that instances may get."""
    hosts = list(_hosts(snapshot))
    for network in sorted(snapshot.networks.values(), key=lambda each: each.name):
        pool = AddressPool(network)
        for address, who in hosts:
            if not pool.contains(address) or pool.is_external(address):
                continue
            where = f"network {network.name}: {address} of {who}"
            if pool.is_used(address):
                owner = _owner(snapshot, network, address)
                yield f"{where} is an address of {owner}, too; give that another one"
            else:
                yield (
                    f"{where} is free for instances; reserve it with gnt-network modify"
                    f" --add-reserved-ips={address} {network.name}"
                )


def reserve_hosts(
    edit: config.Edit, log: base.Feedback, hosts: Iterable[tuple[str, str]]
) -> None:
    """Keep new addresses of the cluster or of nodes from instances, in all networks.

    Args:
        edit: the change that records these addresses.
        log: gets each reservation, and a warning if an instance has the address.
        hosts: address and owner, such as "node node3".
    """
    wanted = dict(hosts)
    for network in sorted(edit.snapshot.networks.values(), key=lambda each: each.name):
        pool = AddressPool(network)
        for address, who in wanted.items():
            if not pool.contains(address) or pool.is_external(address):
                continue
            if pool.is_used(address):
                log.warn(
                    f"network {network.name}: {address} of {who} is an address of"
                    f" {_owner(edit.snapshot, network, address)}, too",
                    hint="give the instance another address",
                )
                continue
            pool.reserve(address, external=True)
            log.info(f"network {network.name}: reserved {address} of {who}")
        result = pool.result()
        if result != network:
            edit.update(result)


def _owner(snapshot: objects.Snapshot, network: objects.Network, address: str) -> str:
    names = (
        instance.name
        for instance in snapshot.instances.values()
        for nic in instance.nics
        if nic.network == network.uuid and nic.ip == address
    )
    return f"instance {next(names, '(unknown)')}"


def hosts_of(node: objects.Node) -> list[tuple[str, str]]:
    """Return the addresses of a node for `reserve_hosts`."""
    addresses = dict.fromkeys((node.primary_ip, node.secondary_ip))
    return [(address, f"node {node.name}") for address in addresses]


def hosts_inside(snapshot: objects.Snapshot, network: objects.Network) -> list[str]:
    """Return the uuids of the nodes with an address in a network."""
    pool = AddressPool(network)
    return sorted(
        node.uuid
        for node in snapshot.nodes.values()
        if pool.contains(node.primary_ip) or pool.contains(node.secondary_ip)
    )


def change_gateway(network: objects.Network, gateway: str | None) -> objects.Network:
    """Return a network with another gateway, or none, and the address swapped.

    Raises:
        OpPrereqError: the new address is in use.
    """
    if gateway == network.gateway:
        return network
    pool = AddressPool(network)
    old = network.gateway
    if old is not None and pool.contains(old) and pool.is_external(old):
        pool.release(old, external=True)
    if gateway is not None:
        try:
            pool.reserve(gateway, external=True)
        except errors.AddressPoolError as err:
            raise values.refuse(
                network.name,
                f"gateway: {err.args[0]}",
                ecodes.ECODE_NOTUNIQUE,
            ) from err
    return pool.result().replace(gateway=gateway)


def change_reserved(
    network: objects.Network,
    add: Iterable[str],
    remove: Iterable[str],
    log: base.Feedback | None = None,
) -> objects.Network:
    """Return a network with other reserved addresses.

    Args:
        network: as it is.
        add: addresses in its range; those in use are left out.
        remove: addresses in its range; those that are not reserved are left out.
        log: takes a warning for each address that is left out.

    Raises:
        OpPrereqError: the gateway, or an end of the range, would become free.
    """
    pool = AddressPool(network)
    problems: list[str] = []
    for address in add:
        if pool.is_used(address):
            problems.append(f"{address} is used by an instance and not reserved")
        elif pool.is_external(address):
            problems.append(f"{address} is already reserved")
        else:
            pool.reserve(address, external=True)
    for address in remove:
        if address in (network.gateway, str(pool.range[0]), str(pool.range[-1])):
            raise values.refuse(
                network.name,
                f"{address} is its gateway, or an end of {pool.range}, and stays"
                " reserved",
            )
        if pool.is_external(address):
            pool.release(address, external=True)
        else:
            problems.append(f"{address} is not reserved")
    if log is not None:
        for text in problems:
            log.warn(f"network {network.name}: {text}")
    return pool.result()


def reserved(network: objects.Network) -> set[str]:
    """Return the addresses that administrators reserve."""
    return set(AddressPool(network).external())
