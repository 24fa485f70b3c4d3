"""Users of networks: connected groups, and NICs of instances; pure."""

from collections.abc import Iterator

from ganeti.base.constants import ecodes
from ganeti.base.text import messages, nicesort
from ganeti.master.config.address_pool import AddressPool
from ganeti.model import objects
from ganeti.operations.network import values


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
        raise values.refuse(
            name,
            f"is connected to {names}; disconnect it from all node groups first",
            ecodes.ECODE_STATE,
        )
    if users := sorted(
        text
        for instance in snapshot.instances.values()
        for text in _users(instance, uuid)
    ):
        raise values.refuse(
            name, f"is used by {messages.some(users)}", ecodes.ECODE_STATE
        )


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
        raise values.refuse(
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
        raise values.refuse(
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
