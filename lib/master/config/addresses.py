"""Users of addresses: nodes, cluster and NICs, separate by network or link; pure."""

import collections
from collections.abc import Iterator

from ganeti.base import errors
from ganeti.master.config.address_pool import AddressPool
from ganeti.model.objects import Instance, Nic, Snapshot
from ganeti.model.objects.params import fill_nicparams

#: The scope of an address (a network's uuid, or a link), and the address.
Place = tuple[str, str]


def place(snapshot: Snapshot, nic: Nic) -> Place | None:
    """Return the scope and address of a NIC, None without an address."""
    if not nic.ip:
        return None
    return str(nic.network or fill_nicparams(snapshot, nic)["link"]), nic.ip


def used(snapshot: Snapshot) -> dict[Place, list[str]]:
    """Return the users of each address, as texts."""
    users: dict[Place, list[str]] = collections.defaultdict(list)
    for where, who in _of_hosts(snapshot):
        users[where].append(who)
    for instance in snapshot.instances.values():
        for index, nic in enumerate(instance.nics):
            if (where_nic := place(snapshot, nic)) is not None:
                users[where_nic].append(_nic(instance, index))
    return users


def holder(snapshot: Snapshot, target: Place, *, but: str) -> str | None:
    """Return the user of an address as text, None if it is free.

    Args:
        snapshot: the configuration.
        target: scope and address.
        but: uuid of an instance to ignore.
    """
    for where, who in _of_hosts(snapshot):
        if where == target:
            return who
    for instance in snapshot.instances.values():
        for index, nic in enumerate(instance.nics):
            # The scope takes longer to compute than the comparison of addresses.
            if nic.ip != target[1] or instance.uuid == but:
                continue
            if place(snapshot, nic) == target:
                return _nic(instance, index)
    return None


def claiming_network(snapshot: Snapshot, address: str, group: str) -> str | None:
    """Return the name of the group's network that contains an address, if any."""
    for uuid in sorted(snapshot.nodegroups[group].networks):
        network = snapshot.networks.get(uuid)
        if network is None:
            continue
        try:
            if AddressPool(network).contains(address):
                return network.name
        except errors.AddressPoolError:
            continue
    return None


def _of_hosts(snapshot: Snapshot) -> Iterator[tuple[Place, str]]:
    link = str(snapshot.cluster.nicparams.get("default", {}).get("link", ""))
    yield (link, snapshot.cluster.master_ip), "the cluster"
    for node in snapshot.nodes.values():
        yield (link, node.primary_ip), f"node {node.name} (primary)"
        if node.secondary_ip != node.primary_ip:
            yield (link, node.secondary_ip), f"node {node.name} (secondary)"


def _nic(instance: Instance, index: int) -> str:
    return f"instance {instance.name} (NIC {index})"
