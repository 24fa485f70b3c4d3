"""The cluster as a value: all records at one revision, with their indexes.

A snapshot is immutable and shares structure with its predecessors, so the cost of
`Snapshot.apply` depends only on the changes, and readers need no lock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

import immutables

from ganeti.base import errors
from ganeti.model.objects.records import (
    Cluster,
    Disk,
    FilterRule,
    Instance,
    Network,
    Node,
    NodeGroup,
    Record,
)

R = TypeVar("R", bound=Record)

#: Record class by table. ``cluster`` has one row, with an empty key.
TABLES: Final[dict[str, type[Record]]] = {
    "cluster": Cluster,
    "nodes": Node,
    "nodegroups": NodeGroup,
    "instances": Instance,
    "disks": Disk,
    "networks": Network,
    "filters": FilterRule,
}
CLUSTER_KEY: Final = ""
#: Tables whose records have a unique ``name``.
_NAMED: Final = ("nodes", "nodegroups", "instances", "networks")

_EMPTY: Final[immutables.Map[str, Any]] = immutables.Map()
_NO_KEYS: Final[frozenset[str]] = frozenset()


class Update(NamedTuple):
    """One changed record; ``record`` None removes it."""

    table: str
    key: str
    record: Record | None


class Snapshot:
    """All records at ``revision``, written under master ``term``.

    Tables are ``Mapping[uuid, record]``. Do not assign to attributes.
    """

    __slots__ = ("_index", "_tables", "revision", "term")

    def __init__(
        self,
        revision: int = 0,
        term: int = 0,
        tables: Mapping[str, Any] | None = None,
        index: Mapping[str, Any] | None = None,
    ) -> None:
        self.revision = revision
        self.term = term
        self._tables: dict[str, Any] = dict.fromkeys(TABLES, _EMPTY) | dict(
            tables or {}
        )
        self._index: dict[str, Any] = dict(index or {})

    # Tables
    def table(self, name: str) -> Mapping[str, Any]:
        """Return a table by name, see `TABLES`."""
        return cast("Mapping[str, Any]", self._tables[name])

    @property
    def cluster(self) -> Cluster:
        """The cluster record.

        Raises:
            ConfigurationError: there is none yet.
        """
        record = self._tables["cluster"].get(CLUSTER_KEY)
        if record is None:
            raise errors.ConfigurationError("the configuration has no cluster record")
        return cast("Cluster", record)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Nodes by uuid."""
        return cast("Mapping[str, Node]", self._tables["nodes"])

    @property
    def nodegroups(self) -> Mapping[str, NodeGroup]:
        """Node groups by uuid."""
        return cast("Mapping[str, NodeGroup]", self._tables["nodegroups"])

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Instances by uuid."""
        return cast("Mapping[str, Instance]", self._tables["instances"])

    @property
    def disks(self) -> Mapping[str, Disk]:
        """Disks by uuid, top-level ones only."""
        return cast("Mapping[str, Disk]", self._tables["disks"])

    @property
    def networks(self) -> Mapping[str, Network]:
        """Networks by uuid."""
        return cast("Mapping[str, Network]", self._tables["networks"])

    @property
    def filters(self) -> Mapping[str, FilterRule]:
        """Job filter rules by uuid."""
        return cast("Mapping[str, FilterRule]", self._tables["filters"])

    # Names and relations
    def uuid_of(self, table: str, name: str) -> str | None:
        """Return the uuid for an exact name in a named table."""
        return cast("str | None", self._index.get(f"{table}.name", _EMPTY).get(name))

    def names(self, table: str) -> Mapping[str, str]:
        """Return name -> uuid of a named table."""
        return cast("Mapping[str, str]", self._index.get(f"{table}.name", _EMPTY))

    def nodes_in_group(self, group_uuid: str) -> frozenset[str]:
        """Return the uuids of a group's nodes."""
        return self._set("group.nodes", group_uuid)

    def primary_instances(self, node_uuid: str) -> frozenset[str]:
        """Return the uuids of a node's primary instances."""
        return self._set("node.primaries", node_uuid)

    def secondary_instances(self, node_uuid: str) -> frozenset[str]:
        """Return the uuids of instances that mirror a disk there (drbd only)."""
        return frozenset(
            owner
            for disk in self._set("node.disks", node_uuid)
            if self.disks[disk].dev_type == "drbd"
            and (owner := self.disk_owner(disk)) is not None
            and self.instances[owner].primary_node != node_uuid
        )

    def disks_on_node(self, node_uuid: str) -> frozenset[str]:
        """Return the uuids of the disks that a node holds, attached or not."""
        return self._set("node.disks", node_uuid)

    def same_host(self, table: str, component: str) -> frozenset[str]:
        """Return the uuids of objects whose host name begins with a component.

        Args:
            table: ``nodes`` or ``instances``.
            component: lower case, without dots.
        """
        return self._set(f"{table}.host", component)

    def disk_owner(self, disk_uuid: str) -> str | None:
        """Return the uuid of the instance that a disk is attached to."""
        return cast("str | None", self._index.get("disk.owner", _EMPTY).get(disk_uuid))

    def forthcoming_instances(self) -> frozenset[str]:
        """Return the uuids of the instances that are only reserved."""
        return self._set("instances.forthcoming", "")

    def request_owner(self, key: str) -> str | None:
        """Return the uuid of the instance that a request with this key made."""
        return cast("str | None", self._index.get("instance.key", _EMPTY).get(key))

    def mac_owner(self, mac: str) -> str | None:
        """Return the uuid of the instance with a NIC of this address."""
        return cast("str | None", self._index.get("nic.mac", _EMPTY).get(mac))

    def number_owner(self, number: str) -> str | None:
        """Return the uuid of the disk or instance that uses a number.

        Args:
            number: see `numbers_of`.
        """
        return cast("str | None", self._index.get("number", _EMPTY).get(number))

    def instance_disks(self, instance: Instance) -> tuple[Disk, ...]:
        """Return the disks of an instance in order."""
        disks = self._tables["disks"]
        return tuple([disks[uuid] for uuid in instance.disks])

    def disk_template(self, instance: Instance) -> str:
        """Return its template: ``diskless`` without disks, ``mixed`` if they differ."""
        disks = self._tables["disks"]
        kinds: set[str] = {disks[uuid].dev_type for uuid in instance.disks}
        if not kinds:
            return "diskless"
        return kinds.pop() if len(kinds) == 1 else "mixed"

    def instance_nodes(self, instance: Instance) -> tuple[str, ...]:
        """Return its node uuids: the primary, then the secondaries sorted."""
        return (instance.primary_node, *self.secondary_nodes(instance))

    def secondary_nodes(self, instance: Instance) -> tuple[str, ...]:
        """Return the uuids of the nodes that mirror its disks (drbd only), sorted."""
        disks = self._tables["disks"]
        others: set[str] = set()
        for uuid in instance.disks:
            disk = disks[uuid]
            if disk.dev_type == "drbd":
                others.update(_holders(disk))
        others.discard(instance.primary_node)
        return tuple(others) if len(others) == 1 else tuple(sorted(others))

    def changed_instances(self, before: "Snapshot") -> set[str] | None:
        """Return the uuids of the instances that differ, or whose disks do.

        Records are immutable and snapshots share them, so the objects are compared.

        Args:
            before: an earlier snapshot.

        Returns:
            None if instances or disks were added or removed.
        """
        changed: set[str] = set()
        for table in ("instances", "disks"):
            rows, old_rows = self.table(table), before.table(table)
            if rows is old_rows:
                continue
            if len(rows) != len(old_rows):
                return None
            for row, old in zip(rows.values(), old_rows.values(), strict=True):
                if row is old:
                    continue
                if row.uuid != old.uuid:
                    return None
                owner = row.uuid if table == "instances" else self.disk_owner(row.uuid)
                if owner is not None:
                    changed.add(owner)
        return changed

    def _set(self, index: str, key: str) -> frozenset[str]:
        return cast("frozenset[str]", self._index.get(index, _EMPTY).get(key, _NO_KEYS))

    # Changing
    def apply(
        self,
        updates: Iterable[Update],
        *,
        revision: int | None = None,
        term: int | None = None,
    ) -> "Snapshot":
        """Return the next snapshot; the cost depends only on the updates.

        Args:
            updates: later ones override earlier ones.
            revision: of the result; one more than this one's if None.
            term: of the result; this one's if None.
        """
        tables, index = _Maps(self._tables), _Index(self._index)
        for table, key, record in updates:
            rows = tables[table]
            old = rows.get(key)
            before, after = set(_entries(table, old)), set(_entries(table, record))
            for name, entry, value in before - after:
                index.drop(name, entry, value)
            for name, entry, value in after - before:
                index.put(name, entry, value)
            if record is not None:
                rows[key] = record
            elif old is not None:
                del rows[key]
        return Snapshot(
            self.revision + 1 if revision is None else revision,
            self.term if term is None else term,
            tables.finish(),
            index.finish(),
        )

    def at(self, revision: int, term: int) -> "Snapshot":
        """Return the same records under another revision and term."""
        if (revision, term) == (self.revision, self.term):
            return self
        return Snapshot(revision, term, self._tables, self._index)


_SETS: Final = frozenset(
    {
        *("group.nodes", "node.primaries", "node.disks", "nodes.host"),
        *("instances.host", "instances.forthcoming"),
    }
)


def _holders(disk: Disk) -> Sequence[str]:
    """Return the nodes that hold a disk; a drbd address names nodes, too."""
    if disk.nodes or disk.dev_type != "drbd":
        return disk.nodes
    return disk.logical_id[:2]


#: Nodes, port and minors in the address of a drbd disk; a secret may follow.
_DRBD_FIELDS: Final = 5


def numbers_of(record: Disk | Instance) -> list[str]:
    """Return the numbers that no other object may have, as texts.

    These are ``port PORT``, and ``DRBD minor MINOR of node UUID``.
    """
    if isinstance(record, Instance):
        port = record.network_port
        return [] if port is None else [f"port {port}"]
    numbers = [text for child in record.children for text in numbers_of(child)]
    if record.dev_type == "drbd" and len(record.logical_id) >= _DRBD_FIELDS:
        node_a, node_b, port, minor_a, minor_b, *_secret = record.logical_id
        numbers += [
            f"DRBD minor {minor} of node {node}"
            for node, minor in ((node_a, minor_a), (node_b, minor_b))
            if isinstance(minor, int)
        ]
        if isinstance(port, int):
            numbers.append(f"port {port}")
    return numbers


def _instance_entries(record: Instance) -> Iterator[tuple[str, str, str]]:
    """Yield the entries of an instance, without those of its name."""
    yield "node.primaries", record.primary_node, record.uuid
    if record.forthcoming:
        yield "instances.forthcoming", "", record.uuid
    if record.request is not None:
        yield "instance.key", record.request.key, record.uuid
    for disk in record.disks:
        yield "disk.owner", disk, record.uuid
    for nic in record.nics:
        yield "nic.mac", nic.mac, record.uuid
    for number in numbers_of(record):
        yield "number", number, record.uuid


def _entries(table: str, record: Record | None) -> Iterator[tuple[str, str, str]]:
    """Yield (index, entry, value) for each index entry of a record."""
    if record is None:
        return
    if table in _NAMED and (name := getattr(record, "name", None)):
        uuid: str = record.uuid  # type: ignore[attr-defined]
        yield f"{table}.name", name, uuid
        if isinstance(record, (Node, Instance)):
            yield f"{table}.host", name.partition(".")[0].lower(), uuid
    if isinstance(record, Node):
        yield "group.nodes", record.group, record.uuid
    elif isinstance(record, Instance):
        yield from _instance_entries(record)
    elif isinstance(record, Disk):
        for number in numbers_of(record):
            yield "number", number, record.uuid
        for node in _holders(record):
            yield "node.disks", node, record.uuid


class _Maps:
    """Persistent maps by name, changed in place until `finish`."""

    __slots__ = ("_changed", "_maps")

    def __init__(self, maps: Mapping[str, Any]) -> None:
        self._maps = maps
        self._changed: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return a map to change."""
        rows = self._changed.get(name)
        if rows is None:
            rows = self._changed[name] = self._maps.get(name, _EMPTY).mutate()
        return rows

    def finish(self) -> dict[str, Any]:
        """Return all maps; those without access are the same as before."""
        changed = {name: rows.finish() for name, rows in self._changed.items()}
        return {**self._maps, **changed}


class _Index(_Maps):
    """The indexes: entry -> uuid, or entry -> set of uuids for those in `_SETS`."""

    __slots__ = ("_members",)

    def __init__(self, maps: Mapping[str, Any]) -> None:
        super().__init__(maps)
        #: Sets that change; a set with many members is copied once for all changes.
        self._members: dict[tuple[str, str], set[str]] = {}

    def put(self, name: str, entry: str, value: str) -> None:
        if name in _SETS:
            self._set_of(name, entry).add(value)
        else:
            self[name][entry] = value

    def drop(self, name: str, entry: str, value: str) -> None:
        if name in _SETS:
            self._set_of(name, entry).discard(value)
        elif self[name].get(entry) == value:
            del self[name][entry]

    def _set_of(self, name: str, entry: str) -> set[str]:
        members = self._members.get((name, entry))
        if members is None:
            members = set(self[name].get(entry, _NO_KEYS))
            self._members[name, entry] = members
        return members

    def finish(self) -> dict[str, Any]:
        for (name, entry), members in self._members.items():
            rows = self[name]
            if members:
                rows[entry] = frozenset(members)
            elif entry in rows:
                del rows[entry]
        return super().finish()
