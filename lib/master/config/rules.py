"""Rules of a change: functions of the configuration that it is made to. Pure.

Functions that check raise `ConfigurationError`.
"""

from collections.abc import Sequence
from typing import Any

from ganeti.base import errors
from ganeti.master.config.address_pool import AddressPool
from ganeti.model.objects import TABLES, Disk, Instance, Network, Nic, Snapshot
from ganeti.model.objects.snapshot import numbers_of

#: Class of a record -> its table.
TABLE_OF = {cls: table for table, cls in TABLES.items()}


def get(snapshot: Snapshot, table: str, uuid: str) -> Any:
    """Return a record.

    Raises:
        ConfigurationError: it does not exist.
    """
    record = snapshot.table(table).get(uuid)
    if record is None:
        raise errors.ConfigurationError(f"{table}: {uuid} does not exist")
    return record


def check_numbers(snapshot: Snapshot, record: Disk | Instance) -> None:
    """Refuse ports and DRBD minors that another object has."""
    for number in numbers_of(record):
        holder = snapshot.number_owner(number)
        if holder in (None, record.uuid):
            continue
        instance = snapshot.instances.get(holder)
        user = f"disk {holder}" if instance is None else f"instance {instance.name}"
        raise errors.ConfigurationError(
            f"{number} is used by {user}, wanted for {record.uuid}"
        )


def check_macs(snapshot: Snapshot, instance: Instance) -> None:
    """Refuse MACs that another instance has."""
    for nic in instance.nics:
        holder = snapshot.mac_owner(nic.mac)
        if holder not in (None, instance.uuid):
            raise errors.ConfigurationError(
                f"instance {instance.name}: MAC {nic.mac} is used by {holder}"
            )


def check_connections(
    snapshot: Snapshot, instance: Instance, before: Sequence[Any]
) -> None:
    """Refuse new NICs in networks that the group is not connected to.

    Creations do not lock groups, so a connection may have ended since their checks.
    """
    known = {nic.network for nic in before}
    group = get(
        snapshot, "nodegroups", get(snapshot, "nodes", instance.primary_node).group
    )
    for nic in instance.nics:
        if nic.network and nic.network not in known | group.networks.keys():
            raise errors.ConfigurationError(
                f"instance {instance.name}: network {nic.network} is not connected"
                f" to node group {group.name}"
            )


def check_new(snapshot: Snapshot, record: Any) -> None:
    """Refuse a record whose uuid or name exists."""
    table = TABLE_OF[type(record)]
    if record.uuid in snapshot.table(table):
        raise errors.ConfigurationError(f"{table}: {record.uuid} already exists")
    if not isinstance(record, Disk):
        check_name(snapshot, table, record)


def check_name(snapshot: Snapshot, table: str, record: Any) -> None:
    """Refuse a name that another object of the table has."""
    holder = snapshot.uuid_of(table, record.name)
    if holder not in (None, record.uuid):
        raise errors.ConfigurationError(
            f"{table}: name {record.name} is used by {holder}, wanted for {record.uuid}"
        )


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


def drbd_ports(disk: Disk) -> list[int]:
    """Return the ports of a disk and its children."""
    ports = [port for child in disk.children for port in drbd_ports(child)]
    if disk.dev_type == "drbd" and isinstance(disk.logical_id[2], int):
        ports.append(disk.logical_id[2])
    return ports
