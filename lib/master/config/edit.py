"""One change of the configuration, with the rules for serials and pools.

An `Edit` lives inside `Config.edit`, under the writers' lock. Each method takes
effect at once in `Edit.snapshot` and becomes durable at the end of the edit.
`ganeti.master.config.topology` changes nodes, node groups and networks with it.

Serials: a new object has 1; an update must carry the stored serial and adds 1. Which
changes also add 1 to the cluster's serial is stated at each method.
"""

import os.path
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.master.config import rules
from ganeti.model import objects
from ganeti.model.objects import (
    CLUSTER_KEY,
    Cluster,
    Disk,
    Instance,
    Network,
    Node,
    NodeGroup,
    Snapshot,
    Update,
)
from ganeti.store import Batch

R = TypeVar("R", Cluster, Node, NodeGroup, Instance, Disk, Network)

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

    # Any object, without the rules of its table
    def put(self, *updates: Update) -> None:
        """Replace or remove records as they are; job filters have no other rule."""
        self.is_changed = True
        self._batch.put(*updates)

    def _store(self, record: R) -> R:
        if isinstance(record, Disk | Instance):
            rules.check_numbers(self.snapshot, record)
        key = CLUSTER_KEY if isinstance(record, Cluster) else record.uuid
        self.put(Update(rules.TABLE_OF[type(record)], key, record))
        return record

    def touch(self, record: R, **changes: Any) -> R:
        """Store a record with changes, serial + 1 and the time of change."""
        changes = {
            "serial_no": record.serial_no + 1,
            "mtime": self._now,
            **changes,
        }
        return self._store(record.replace(**changes))

    def add(self, record: R) -> R:
        """Store a new record with serial 1, and return it as stored.

        Raises:
            ConfigurationError: its uuid or name exists.
        """
        rules.check_new(self.snapshot, record)
        return self._store(
            record.replace(serial_no=1, ctime=self._now, mtime=self._now)
        )

    def remove(self, table: str, uuid: str) -> Any:
        """Remove a record and return it.

        Raises:
            ConfigurationError: it does not exist.
        """
        record = rules.get(self.snapshot, table, uuid)
        self.put(Update(table, uuid, None))
        return record

    # Any object, with the rules of its table
    def update(self, record: R) -> R:
        """Replace a stored record and return it as stored: serial + 1, time of change.

        A node adds 1 to the cluster's serial. Addresses of an instance's NICs in
        networks are taken from and released to the pools. An update that is already
        stored changes nothing.

        Raises:
            ConfigurationError: it does not exist, its name is in use, or it was changed
                since it was read.
        """
        table = rules.TABLE_OF[type(record)]
        key = CLUSTER_KEY if isinstance(record, Cluster) else record.uuid
        stored = rules.get(self.snapshot, table, key)
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
            rules.check_name(self.snapshot, table, record)
        if isinstance(record, Instance):
            rules.check_macs(self.snapshot, record)
            rules.check_connections(self.snapshot, record, stored.nics)
            self._move_addresses(stored.nics, record.nics)
        if isinstance(record, Node):
            self.update_cluster()
        return self.touch(record)

    def update_cluster(self, **changes: Any) -> Cluster:
        """Change fields of the cluster record; its serial + 1."""
        return self.touch(self.snapshot.cluster, **changes)

    def _move_addresses(self, old: Sequence[Any], new: Sequence[Any]) -> None:
        for network in rules.move_addresses(self.snapshot, old, new):
            self._store(network)

    # Instances
    def add_instance(self, instance: Instance, disks: Sequence[Disk] = ()) -> Instance:
        """Add an instance with its disks, and take the addresses of its NICs.

        Raises:
            ConfigurationError: name, uuid or MAC exists, or the node does not.
            AddressPoolError: an address is in use.
        """
        rules.get(self.snapshot, "nodes", instance.primary_node)
        rules.check_macs(self.snapshot, instance)
        rules.check_connections(self.snapshot, instance, ())
        self._move_addresses((), instance.nics)
        for index, disk in enumerate(disks):
            self.add(disk.replace(iv_name=f"disk/{index}"))
        return self.add(instance.replace(disks=tuple(disk.uuid for disk in disks)))

    def create_reserved(self, instance: Instance, disks: Sequence[Disk]) -> Instance:
        """Replace a forthcoming instance and its disks by those that were created.

        Args:
            instance: its record, with the serial of the forthcoming one.
            disks: the records of all its disks, with their serials.

        Raises:
            ConfigurationError: it is not forthcoming, or was changed since it was read.
        """
        stored: Instance = rules.get(self.snapshot, "instances", instance.uuid)
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
        instance: Instance = rules.get(self.snapshot, "instances", uuid)
        for disk in () if keep_disks else instance.disks:
            self._drop_disk(disk)
        self._move_addresses(instance.nics, ())
        if instance.network_port is not None:
            self.release_port(instance.network_port)
        self.remove("instances", uuid)
        self.update_cluster()
        return instance

    def rename_instance(self, uuid: str, name: str) -> Instance:
        """Rename an instance, and the paths of its file based disks."""
        instance: Instance = rules.get(self.snapshot, "instances", uuid)
        if instance.name == name:
            return instance
        rules.check_name(self.snapshot, "instances", instance.replace(name=name))
        for disk in self.snapshot.instance_disks(instance):
            if disk.dev_type in _NAMED_DIRECTORIES:
                driver, path, *rest = disk.logical_id
                base = os.path.dirname(os.path.dirname(path))
                path = os.path.join(base, name, os.path.basename(path))
                self.touch(disk, logical_id=(driver, path, *rest))
        return self.touch(instance, name=name)

    def set_primary_node(self, uuid: str, node_uuid: str) -> Instance:
        """Move an instance to another primary node; no serial changes."""
        rules.get(self.snapshot, "nodes", node_uuid)
        instance: Instance = rules.get(self.snapshot, "instances", uuid)
        return self._store(instance.replace(primary_node=node_uuid))

    def move_reserved(self, uuid: str, node_uuid: str) -> Instance:
        """Move a forthcoming instance and its disks to a node; no serial changes.

        Mirrored disks stay on their two nodes, whose roles are swapped.

        Raises:
            ConfigurationError: it is not forthcoming, or mirrored and not on the node.
        """
        instance: Instance = rules.get(self.snapshot, "instances", uuid)
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
        added = self.add(disk)
        if instance_uuid is not None:
            self.attach_disk(instance_uuid, disk.uuid, index)
        return cast("Disk", rules.get(self.snapshot, "disks", added.uuid))

    def attach_disk(
        self, instance_uuid: str, disk_uuid: str, index: int | None = None
    ) -> Instance:
        """Attach a disk at a position, by default the last; instance serial + 1.

        Raises:
            ConfigurationError: it does not exist, or is already attached.
        """
        instance: Instance = rules.get(self.snapshot, "instances", instance_uuid)
        rules.get(self.snapshot, "disks", disk_uuid)
        if (holder := self.snapshot.disk_owner(disk_uuid)) is not None:
            raise errors.ConfigurationError(
                f"disk {disk_uuid} is attached to {holder}, wanted for {instance.name}"
            )
        disks = list(instance.disks)
        disks.insert(len(disks) if index is None else index, disk_uuid)
        return self._set_disks(instance, disks)

    def detach_disk(self, instance_uuid: str, disk_uuid: str) -> Instance:
        """Detach a disk, which stays in the configuration; instance serial + 1."""
        instance: Instance = rules.get(self.snapshot, "instances", instance_uuid)
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
        return self.touch(instance, disks=tuple(disks))

    def remove_disk(self, uuid: str) -> Disk:
        """Remove a disk, detach it, and free its ports; cluster serial + 1."""
        disk: Disk = rules.get(self.snapshot, "disks", uuid)
        if (holder := self.snapshot.disk_owner(uuid)) is not None:
            self.detach_disk(holder, uuid)
        self._drop_disk(uuid)
        return disk

    def _drop_disk(self, uuid: str) -> None:
        disk = self.remove("disks", uuid)
        for port in rules.drbd_ports(disk):
            self.release_port(port)
        self.update_cluster()

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


def new_records(records: Iterable[objects.Record]) -> list[Update]:
    """Return the updates that put records into an empty configuration."""
    return [
        Update(
            rules.TABLE_OF[type(record)],
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
