"""Rules for networks: their values, and what uses them.

Every function raises OpPrereqError, with the name of the network, wanted and found.
The address pool is in `ganeti.operations.network.pools`.
"""

from collections.abc import Iterator

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.net import ip, netutils
from ganeti.base.text import messages, nicesort
from ganeti.master.config.address_pool import (
    LONGEST_PREFIX,
    SHORTEST_PREFIX,
    AddressPool,
)
from ganeti.model import objects
from ganeti.operations.cluster import settings
from ganeti.operations.parameters import typed_params


def refuse(name: str, text: str, ecode: str = ecodes.ECODE_INVAL) -> Exception:
    """Return the error about a network."""
    return errors.OpPrereqError(f"network {name}: {text}", ecode)


def check_new_name(snapshot: objects.Snapshot, name: str) -> None:
    """Check a name: free, not ``none``, no uuid, fit for a line of a file."""
    # Files on all nodes have one line per network.
    netutils.check_free_name(name, "network")
    if name.lower() == typed_params.NONE:
        raise refuse(name, "the word stands for no network and cannot be a name")
    if (other := snapshot.uuid_of("networks", name)) is not None:
        raise refuse(name, f"already exists, with uuid {other}", ecodes.ECODE_EXISTS)


def ipv4_range(text: str, name: str) -> ip.IPv4Range:
    """Return the range of a pool."""
    try:
        addresses = ip.ipv4_range(text)
    except ValueError as err:
        raise refuse(
            name, f"wanted a range such as 192.0.2.0/24, found {text}: {err}"
        ) from err
    if not SHORTEST_PREFIX <= addresses.prefixlen <= LONGEST_PREFIX:
        raise refuse(
            name,
            f"wanted a range of /{SHORTEST_PREFIX} to /{LONGEST_PREFIX}, found {text}",
        )
    return addresses


def ipv4_host(address: str, network: objects.Network, what: str) -> str:
    """Return an address that a host of the network can have.

    Args:
        address: as given.
        network: its range is valid.
        what: purpose of the address in errors, such as ``gateway``.
    """
    inside = ipv4_inside(address, network, what)
    addresses = ip.ipv4_range(network.network)
    if inside in (str(addresses[0]), str(addresses[-1])):
        raise refuse(
            network.name,
            f"{what}: {inside} is the first or last address of {addresses}, which no"
            " host can have",
        )
    return inside


def ipv4_inside(address: str, network: objects.Network, what: str) -> str:
    """Return an address in the range of the network."""
    try:
        parsed = ip.ipv4(address)
    except ValueError as err:
        raise refuse(
            network.name, f"{what}: wanted an IPv4 address, found {address}"
        ) from err
    if parsed not in ip.ipv4_range(network.network):
        raise refuse(network.name, f"{what}: {address} is not in {network.network}")
    return str(parsed)


def ipv6(network: objects.Network) -> objects.Network:
    """Return a network with its IPv6 values checked, in their usual form."""
    addresses = None
    if network.network6 is not None:
        try:
            addresses = ip.ipv6_range(network.network6)
        except ValueError as err:
            raise refuse(
                network.name,
                "network6: wanted a range such as 2001:db8::/64, found"
                f" {network.network6}: {err}",
            ) from err
    gateway = network.gateway6
    if gateway is not None:
        gateway = _gateway6(gateway, addresses, network.name)
    return network.replace(
        network6=None if addresses is None else str(addresses), gateway6=gateway
    )


def _gateway6(gateway: str, addresses: ip.IPv6Range | None, name: str) -> str:
    try:
        parsed = ip.ipv6(gateway)
    except ValueError as err:
        raise refuse(
            name, f"gateway6: wanted an IPv6 address, found {gateway}"
        ) from err
    if addresses is None:
        raise refuse(name, f"gateway6: {gateway} needs network6, and there is none")
    # Every router has a link-local address, and advertises it as the gateway.
    if parsed not in addresses and not parsed.is_link_local:
        raise refuse(
            name, f"gateway6: {gateway} is not in {addresses}, nor in fe80::/10"
        )
    return str(parsed)


def mac_prefix(text: str, name: str) -> str:
    """Return a prefix of MAC addresses in lower case."""
    try:
        return settings.mac_prefix(text)
    except errors.OpPrereqError as err:
        raise refuse(name, str(err.args[0])) from err


def connected_groups(
    snapshot: objects.Snapshot, network: str
) -> list[objects.NodeGroup]:
    """Return the groups that a network is connected to, by name."""
    return nicesort.nice_sorted(
        (g for g in snapshot.nodegroups.values() if network in g.networks),
        lambda group: group.name,
    )


def check_unused(snapshot: objects.Snapshot, uuid: str) -> None:
    """Refuse the removal of a network that groups or instances use.

    Raises:
        OpPrereqError: contains the users.
    """
    name = snapshot.networks[uuid].name
    if groups := connected_groups(snapshot, uuid):
        names = messages.some(group.name for group in groups)
        raise refuse(
            name,
            f"is connected to {names}; disconnect it from all node groups first",
            ecodes.ECODE_STATE,
        )
    if users := sorted(
        text
        for instance in snapshot.instances.values()
        for text in _users(instance, uuid)
    ):
        raise refuse(name, f"is used by {messages.some(users)}", ecodes.ECODE_STATE)


def check_unused_in_group(snapshot: objects.Snapshot, uuid: str, group: str) -> None:
    """Refuse the end of a connection that instances of the group use.

    Raises:
        OpPrereqError: contains the NICs.
    """
    users = [
        text
        for instance in instances_of(snapshot, group)
        for text in _users(instance, uuid)
    ]
    if users:
        raise refuse(
            snapshot.networks[uuid].name,
            f"cannot be disconnected from node group {snapshot.nodegroups[group].name},"
            f" it is used by {messages.some(users)}",
            ecodes.ECODE_STATE,
        )


def check_conflicts(snapshot: objects.Snapshot, uuid: str, group: str) -> None:
    """Refuse a connection if NICs of the group have addresses of the network already.

    Raises:
        OpPrereqError: contains the NICs.
    """
    network = snapshot.networks[uuid]
    pool = AddressPool(network)
    conflicts = [
        f"{_nic(instance, index)} with {nic.ip}"
        for instance in instances_of(snapshot, group)
        for index, nic in enumerate(instance.nics)
        if nic.ip and nic.network != uuid and pool.contains(nic.ip)
    ]
    if conflicts:
        raise refuse(
            network.name,
            f"cannot be connected to node group {snapshot.nodegroups[group].name}:"
            f" addresses in {network.network} belong to"
            f" {messages.some(conflicts)}, outside of the network",
            ecodes.ECODE_STATE,
        )


def instances_of(snapshot: objects.Snapshot, group: str) -> Iterator[objects.Instance]:
    """Yield the instances with their primary node in a group, by name."""
    uuids = {
        uuid
        for node in snapshot.nodes_in_group(group)
        for uuid in snapshot.primary_instances(node)
    }
    yield from sorted(
        (snapshot.instances[uuid] for uuid in uuids), key=lambda each: each.name
    )


def _users(instance: objects.Instance, network: str) -> Iterator[str]:
    for index, nic in enumerate(instance.nics):
        if nic.network == network:
            yield _nic(instance, index)


def _nic(instance: objects.Instance, index: int) -> str:
    return f"instance {instance.name} (NIC {index})"
