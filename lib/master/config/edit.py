"""One change of the configuration, with the rules for serials and pools.

An `Edit` lives inside `Config.edit`, under the writers' lock. Each method takes
effect at once in `Edit.snapshot` and becomes durable at the end of the edit.

Serials: a new object has 1; an update must carry the stored serial and adds 1. Which
changes also add 1 to the cluster's serial is stated at each method.
"""

import os.path
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants.protocols import ssh
from ganeti.master.config import candidate_pool, nic_addresses
from ganeti.model import objects
from ganeti.model.objects import (
    CLUSTER_KEY,
    TABLES,
    Cluster,
    Disk,
    FilterRule,
    Instance,
    Network,
    Node,
    NodeGroup,
    Snapshot,
    Update,
)
from ganeti.model.objects.snapshot import numbers_of
from ganeti.store import Batch

R = TypeVar("R", Cluster, Node, NodeGroup, Instance, Disk, Network)

_TABLE_OF = {cls: table for table, cls in TABLES.items()}
#: Templates whose files are in a directory named like the instance.
_NAMED_DIRECTORIES = disk_constants.DTS_INSTANCE_DEPENDENT_PATH


class Edit:
    """Uncommitted changes. Not thread-safe; use it only inside `Config.edit`."""

    def __init__(self, batch: Batch, *, now: float, owner: str) -> None:
        """Start from the newest state; ``now`` becomes the time of change."""
        self._batch = batch
        self._now = now
        self.owner = owner
        self.is_changed = False

    @property
    def snapshot(self) -> Snapshot:
        """The newest configuration with this edit's own changes."""
        return self._batch.snapshot

    # Rules
    def _put(self, *updates: Update) -> None:
        self.is_changed = True
        self._batch.put(*updates)

    def _store(self, record: R) -> R:
        if isinstance(record, Disk | Instance):
            self._check_numbers(record)
        key = CLUSTER_KEY if isinstance(record, Cluster) else record.uuid
        self._put(Update(_TABLE_OF[type(record)], key, record))
        return record

    def _check_numbers(self, record: Disk | Instance) -> None:
        """Refuse ports and DRBD minors that another object has."""
        for number in numbers_of(record):
            holder = self.snapshot.number_owner(number)
            if holder in (None, record.uuid):
                continue
            instance = self.snapshot.instances.get(holder)
            user = f"disk {holder}" if instance is None else f"instance {instance.name}"
            raise errors.ConfigurationError(
                f"{number} is used by {user}, wanted for {record.uuid}"
            )

    def _check_macs(self, instance: Instance) -> None:
        for nic in instance.nics:
            holder = self.snapshot.mac_owner(nic.mac)
            if holder not in (None, instance.uuid):
                raise errors.ConfigurationError(
                    f"instance {instance.name}: MAC {nic.mac} is used by {holder}"
                )

    def _check_connections(self, instance: Instance, before: Sequence[Any]) -> None:
        """Refuse new NICs in networks that the group is not connected to.

        Creations do not lock groups, so a connection may have ended since their checks.
        """
        known = {nic.network for nic in before}
        group = self._get("nodegroups", self._get("nodes", instance.primary_node).group)
        for nic in instance.nics:
            if nic.network and nic.network not in known | group.networks.keys():
                raise errors.ConfigurationError(
                    f"instance {instance.name}: network {nic.network} is not connected"
                    f" to node group {group.name}"
                )

    def _touch(self, record: R, **changes: Any) -> R:
        """Store a record with changes, serial + 1 and the time of change."""
        changes = {
            "serial_no": record.serial_no + 1,
            "mtime": self._now,
            **changes,
        }
        return self._store(record.replace(**changes))

    def _touch_cluster(self, **changes: Any) -> Cluster:
        return self._touch(self.snapshot.cluster, **changes)

    def _get(self, table: str, uuid: str) -> Any:
        record = self.snapshot.table(table).get(uuid)
        if record is None:
            raise errors.ConfigurationError(f"{table}: {uuid} does not exist")
        return record

    def _check_new(self, record: Any) -> None:
        table = _TABLE_OF[type(record)]
        if record.uuid in self.snapshot.table(table):
            raise errors.ConfigurationError(f"{table}: {record.uuid} already exists")
        if not isinstance(record, Disk):
            self._check_name(table, record)

    def _check_name(self, table: str, record: Any) -> None:
        holder = self.snapshot.uuid_of(table, record.name)
        if holder not in (None, record.uuid):
            raise errors.ConfigurationError(
                f"{table}: name {record.name} is used by {holder},"
                f" wanted for {record.uuid}"
            )

    def _add(self, record: R) -> R:
        self._check_new(record)
        return self._store(
            record.replace(serial_no=1, ctime=self._now, mtime=self._now)
        )

    def _remove(self, table: str, uuid: str) -> Any:
        record = self._get(table, uuid)
        self._put(Update(table, uuid, None))
        return record

    # Any object
    def update(self, record: R) -> R:
        """Replace a stored record and return it as stored: serial + 1, time of change.

        A node adds 1 to the cluster's serial. Addresses of an instance's NICs in
        networks are taken from and released to the pools. An update that is already
        stored changes nothing.

        Raises:
            ConfigurationError: it does not exist, its name is in use, or it was changed
                since it was read.
        """
        table = _TABLE_OF[type(record)]
        key = CLUSTER_KEY if isinstance(record, Cluster) else record.uuid
        stored = self._get(table, key)
        if stored.serial_no == record.serial_no + 1 and stored == record.replace(
            serial_no=stored.serial_no, mtime=stored.mtime
        ):
            return cast("R", stored)
        if stored.serial_no != record.serial_no:
            raise errors.ConfigurationError(
                f"{table}: {key or 'cluster'} was changed since it was read: wanted"
                f" serial {record.serial_no}, found {stored.serial_no}"
            )
        if not isinstance(record, (Cluster, Disk)):
            self._check_name(table, record)
        if isinstance(record, Instance):
            self._check_macs(record)
            self._check_connections(record, stored.nics)
            self._move_addresses(stored.nics, record.nics)
        if isinstance(record, Node):
            self._touch_cluster()
        return self._touch(record)

    def update_cluster(self, **changes: Any) -> Cluster:
        """Change fields of the cluster record."""
        return self._touch_cluster(**changes)

    # Nodes and groups
    def add_node(self, node: Node) -> Node:
        """Add a node; adds 1 to the cluster's serial."""
        self._get("nodegroups", node.group)
        added = self._add(node)
        self._touch_cluster()
        return added

    def remove_node(self, uuid: str) -> None:
        """Remove a node and its certificate; adds 1 to the cluster's serial.

        Raises:
            ConfigurationError: it does not exist, is the master, or is still used.
        """
        node = self._get("nodes", uuid)
        if uuid == self.snapshot.cluster.master_node:
            raise errors.ConfigurationError(f"node {node.name} is the master")
        users = len(self.snapshot.primary_instances(uuid)) + len(
            self.snapshot.secondary_instances(uuid)
        )
        if users:
            raise errors.ConfigurationError(
                f"node {node.name} still has {users} instances"
            )
        self._remove("nodes", uuid)
        certs = self.snapshot.cluster.candidate_certs
        self._touch_cluster(
            candidate_certs={
                key: digest
                for key, digest in certs.items()
                if key.removesuffix(ssh.CRYPTO_NEXT) != uuid
            }
        )

    def add_group(self, group: NodeGroup) -> NodeGroup:
        """Add a node group; adds 1 to the cluster's serial."""
        added = self._add(group.replace(members=()))
        self._touch_cluster()
        return added

    def remove_group(self, uuid: str) -> None:
        """Remove an empty node group; adds 1 to the cluster's serial.

        Raises:
            ConfigurationError: it does not exist, is not empty, or is the last one.
        """
        group = self._get("nodegroups", uuid)
        if members := self.snapshot.nodes_in_group(uuid):
            raise errors.ConfigurationError(
                f"group {group.name} still has {len(members)} nodes"
            )
        if len(self.snapshot.nodegroups) == 1:
            raise errors.ConfigurationError(f"group {group.name} is the last one")
        self._remove("nodegroups", uuid)
        self._touch_cluster()

    def assign_nodes(self, groups: Mapping[str, str]) -> None:
        """Move nodes to groups; adds 1 to all of them and to the cluster.

        Args:
            groups: node uuid -> group uuid.
        """
        touched: set[str] = set()
        for uuid, group in groups.items():
            node = self._get("nodes", uuid)
            self._get("nodegroups", group)
            if node.group == group:
                continue
            touched |= {node.group, group}
            self._touch(node, group=group)
        for uuid in sorted(touched):
            self._touch(self._get("nodegroups", uuid))
        if touched:
            self._touch_cluster()

    def fill_candidate_pool(self, ignore: Collection[str] = ()) -> list[Node]:
        """Promote random eligible nodes until the pool is full.

        Each promotion adds 1 to the node and to the cluster.

        Args:
            ignore: uuids of nodes that neither count nor may be promoted.

        Returns:
            The promoted nodes, as stored.
        """
        count = candidate_pool.missing(self.snapshot, ignore)
        eligible = candidate_pool.promotable(self.snapshot, ignore)
        promoted = []
        for uuid in random.sample(eligible, min(count, len(eligible))):
            promoted.append(
                self._touch(self.snapshot.nodes[uuid], master_candidate=True)
            )
            self._touch_cluster()
        return promoted

    def promote_if_missing(self, uuid: str) -> Node | None:
        """Promote a node if the pool lacks candidates and the node may be one.

        Returns:
            the node as stored; None if nothing was changed.
        """
        if not candidate_pool.missing(self.snapshot):
            return None
        if uuid not in candidate_pool.promotable(self.snapshot):
            return None
        promoted = self._touch(self.snapshot.nodes[uuid], master_candidate=True)
        self._touch_cluster()
        return promoted

    # Networks
    def add_network(self, network: Network) -> Network:
        """Add a network; adds 1 to the cluster's serial."""
        added = self._add(network)
        self._touch_cluster()
        return added

    def remove_network(self, uuid: str) -> None:
        """Remove a network; adds 1 to the cluster's serial.

        Raises:
            ConfigurationError: it does not exist, or is connected to a group.
        """
        network = self._get("networks", uuid)
        for group in self.snapshot.nodegroups.values():
            if uuid in group.networks:
                raise errors.ConfigurationError(
                    f"network {network.name} is connected to group {group.name}"
                )
        self._remove("networks", uuid)
        self._touch_cluster()

    def _move_addresses(self, old: Sequence[Any], new: Sequence[Any]) -> None:
        for network in nic_addresses.move_addresses(self.snapshot, old, new):
            self._store(network)

    # Instances
    def add_instance(self, instance: Instance, disks: Sequence[Disk] = ()) -> Instance:
        """Add an instance with its disks, and take the addresses of its NICs.

        Raises:
            ConfigurationError: name, uuid or MAC exists, or the node does not.
            AddressPoolError: an address is in use.
        """
        self._get("nodes", instance.primary_node)
        self._check_macs(instance)
        self._check_connections(instance, ())
        self._move_addresses((), instance.nics)
        for index, disk in enumerate(disks):
            self._add(disk.replace(iv_name=f"disk/{index}"))
        return self._add(instance.replace(disks=tuple(disk.uuid for disk in disks)))

    def create_reserved(self, instance: Instance, disks: Sequence[Disk]) -> Instance:
        """Replace a forthcoming instance and its disks by those that were created.

        Args:
            instance: its record, with the serial of the forthcoming one.
            disks: the records of all its disks, with their serials.

        Raises:
            ConfigurationError: it is not forthcoming, or was changed since it was read.
        """
        stored: Instance = self._get("instances", instance.uuid)
        if not stored.forthcoming:
            raise errors.ConfigurationError(
                f"instance {stored.name}: is not forthcoming, it cannot be created"
            )
        for disk in disks:
            self.update(disk)
        return self.update(instance)

    def remove_instance(self, uuid: str, *, keep_disks: bool = False) -> Instance:
        """Remove an instance, its disks unless kept, and free port and addresses.

        Adds 1 to the cluster's serial, and 1 more per disk removed.
        """
        instance: Instance = self._get("instances", uuid)
        for disk in () if keep_disks else instance.disks:
            self._drop_disk(disk)
        self._move_addresses(instance.nics, ())
        if instance.network_port is not None:
            self.release_port(instance.network_port)
        self._remove("instances", uuid)
        self._touch_cluster()
        return instance

    def set_instance_state(
        self,
        uuid: str,
        *,
        admin_state: str | None = None,
        admin_state_source: str | None = None,
        disks_active: bool | None = None,
    ) -> Instance:
        """Set all values that are not None; a change adds 1 to the instance."""
        instance: Instance = self._get("instances", uuid)
        values = {
            "admin_state": admin_state,
            "admin_state_source": admin_state_source,
            "disks_active": disks_active,
        }
        changes = {
            name: value
            for name, value in values.items()
            if value is not None and value != getattr(instance, name)
        }
        return self._touch(instance, **changes) if changes else instance

    def rename_instance(self, uuid: str, name: str) -> Instance:
        """Rename an instance, and the paths of its file based disks."""
        instance: Instance = self._get("instances", uuid)
        if instance.name == name:
            return instance
        self._check_name("instances", instance.replace(name=name))
        for disk in self.snapshot.instance_disks(instance):
            if disk.dev_type in _NAMED_DIRECTORIES:
                driver, path, *rest = disk.logical_id
                base = os.path.dirname(os.path.dirname(path))
                path = os.path.join(base, name, os.path.basename(path))
                self._touch(disk, logical_id=(driver, path, *rest))
        return self._touch(instance, name=name)

    def set_primary_node(self, uuid: str, node_uuid: str) -> Instance:
        """Move an instance to another primary node; no serial changes."""
        self._get("nodes", node_uuid)
        instance: Instance = self._get("instances", uuid)
        return self._store(instance.replace(primary_node=node_uuid))

    def move_reserved(self, uuid: str, node_uuid: str) -> Instance:
        """Move a forthcoming instance and its disks to a node; no serial changes.

        Mirrored disks stay on their two nodes, whose roles are swapped.

        Raises:
            ConfigurationError: it is not forthcoming, or mirrored and not on the node.
        """
        instance: Instance = self._get("instances", uuid)
        if not instance.forthcoming:
            raise errors.ConfigurationError(
                f"instance {instance.name}: is not forthcoming"
            )
        for disk in self.snapshot.instance_disks(instance):
            if disk.dev_type == "drbd" and node_uuid not in disk.nodes:
                raise errors.ConfigurationError(
                    f"disk {disk.uuid}: is not mirrored to node {node_uuid}"
                )
            if disk.nodes and disk.dev_type != "drbd":
                self._store(disk.replace(nodes=(node_uuid,)))
        return self.set_primary_node(uuid, node_uuid)

    # Disks
    def add_disk(
        self, disk: Disk, instance_uuid: str | None = None, index: int | None = None
    ) -> Disk:
        """Add a disk, and attach it when an instance is given (see `attach_disk`)."""
        added = self._add(disk)
        if instance_uuid is not None:
            self.attach_disk(instance_uuid, disk.uuid, index)
        return cast("Disk", self._get("disks", added.uuid))

    def attach_disk(
        self, instance_uuid: str, disk_uuid: str, index: int | None = None
    ) -> Instance:
        """Attach a disk at a position, by default the last; instance serial + 1.

        Raises:
            ConfigurationError: it does not exist, or is already attached.
        """
        instance: Instance = self._get("instances", instance_uuid)
        self._get("disks", disk_uuid)
        if (holder := self.snapshot.disk_owner(disk_uuid)) is not None:
            raise errors.ConfigurationError(
                f"disk {disk_uuid} is attached to {holder}, wanted for {instance.name}"
            )
        disks = list(instance.disks)
        disks.insert(len(disks) if index is None else index, disk_uuid)
        return self._set_disks(instance, disks)

    def detach_disk(self, instance_uuid: str, disk_uuid: str) -> Instance:
        """Detach a disk, which stays in the configuration; instance serial + 1."""
        instance: Instance = self._get("instances", instance_uuid)
        if disk_uuid not in instance.disks:
            raise errors.ConfigurationError(
                f"disk {disk_uuid} is not attached to instance {instance.name}"
            )
        return self._set_disks(
            instance, [uuid for uuid in instance.disks if uuid != disk_uuid]
        )

    def _set_disks(self, instance: Instance, disks: Iterable[str]) -> Instance:
        for index, uuid in enumerate(disks):
            disk = self.snapshot.disks[uuid]
            if disk.iv_name != f"disk/{index}":
                self._store(disk.replace(iv_name=f"disk/{index}"))
        return self._touch(instance, disks=tuple(disks))

    def remove_disk(self, uuid: str) -> Disk:
        """Remove a disk, detach it, and free its ports; cluster serial + 1."""
        disk: Disk = self._get("disks", uuid)
        if (holder := self.snapshot.disk_owner(uuid)) is not None:
            self.detach_disk(holder, uuid)
        self._drop_disk(uuid)
        return disk

    def _drop_disk(self, uuid: str) -> None:
        disk = self._remove("disks", uuid)
        for port in drbd_ports(disk):
            self.release_port(port)
        self._touch_cluster()

    # Job filters
    def put_filter(self, rule: FilterRule) -> FilterRule:
        """Add or replace a job filter rule; rules have no serial."""
        self._put(Update("filters", rule.uuid, rule))
        return rule

    def delete_filter(self, uuid: str) -> FilterRule:
        """Remove a job filter rule."""
        return cast("FilterRule", self._remove("filters", uuid))

    # Ports
    def allocate_port(self) -> int:
        """Take a TCP port: a released one, else the next; no serial changes.

        Raises:
            ConfigurationError: all ports are used.
        """
        cluster = self.snapshot.cluster
        if cluster.tcpudp_port_pool:
            port = min(cluster.tcpudp_port_pool)
            left = tuple(item for item in cluster.tcpudp_port_pool if item != port)
            self._store(cluster.replace(tcpudp_port_pool=left))
            return port
        port = cluster.highest_used_port + 1
        if port > disk_constants.LAST_DRBD_PORT:
            raise errors.ConfigurationError(
                f"all ports up to {disk_constants.LAST_DRBD_PORT} are used"
            )
        self._store(cluster.replace(highest_used_port=port))
        return port

    def release_port(self, port: int) -> None:
        """Release a port to the pool; no serial changes."""
        cluster = self.snapshot.cluster
        if port not in cluster.tcpudp_port_pool:
            pool = tuple(sorted((*cluster.tcpudp_port_pool, port)))
            self._store(cluster.replace(tcpudp_port_pool=pool))


def drbd_ports(disk: Disk) -> list[int]:
    """Return the ports of a disk and its children."""
    ports = [port for child in disk.children for port in drbd_ports(child)]
    if disk.dev_type == "drbd" and isinstance(disk.logical_id[2], int):
        ports.append(disk.logical_id[2])
    return ports


def new_records(records: Iterable[objects.Record]) -> list[Update]:
    """Return the updates that put records into an empty configuration."""
    return [
        Update(
            _TABLE_OF[type(record)],
            CLUSTER_KEY if isinstance(record, Cluster) else cast("Any", record).uuid,
            record,
        )
        for record in records
    ]


def initial_changes(cluster: Cluster, group: NodeGroup, node: Node) -> list[Update]:
    """Return the changes that create a new cluster in an empty store.

    Args:
        cluster: complete record; serial and times are taken unchanged.
        group: the first node group.
        node: the first node, which is the master.

    Raises:
        ConfigurationError: the records do not fit each other.
    """
    for what, expected, actual in (
        ("cluster.master_node", node.uuid, cluster.master_node),
        ("node.group", group.uuid, node.group),
        ("node.master_candidate", True, node.master_candidate),
    ):
        if expected != actual:
            raise errors.ConfigurationError(
                f"new cluster: {what} should be {expected}, found {actual}"
            )
    return new_records([cluster, group.replace(members=()), node])
