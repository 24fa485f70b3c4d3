"""Answers to the queries of confd: a query and a snapshot in, a reply out.

The table `_ANSWERS` at the end has one function per kind of query. Each takes a
`Projection` and the search key, which is whatever JSON the client sent.

Objects are shown as in config.data, without secrets: every node has the key of confd,
and the answers travel in clear text. Private parameters of operating systems are
therefore replaced by ``<redacted>``, and the shared secret of a DRBD disk by null;
Ganeti shows both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from ganeti.base.constants import versions
from ganeti.base.constants.protocols import confd
from ganeti.model.objects import (
    Cluster,
    Disk,
    Instance,
    Node,
    Record,
    Snapshot,
    Update,
    lookup,
)
from ganeti.model.objects.codec import to_dict
from ganeti.protocols.confd.wire import Dropped, Query, Reply, encode_message

_REDACTED: Final = "<redacted>"
#: Index of the shared secret in the address of a drbd disk.
_DRBD_SECRET: Final = 5
#: A table with more rows does not fit a datagram of 60 KiB: a record has 100 bytes.
MAX_ROWS: Final = 600
_TABLES: Final = (
    *("nodes", "nodegroups", "instances", "networks", "disks", "filters"),
)


class TooLargeError(Exception):
    """The answer does not fit a datagram."""


def _redacted(value: Any) -> Any:
    """Return parameters with the values, on all levels, replaced."""
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    return _REDACTED


def document(record: Record) -> dict[str, Any]:
    """Return a record in the form of ``config.data``, without its secrets."""
    result = to_dict(record)
    if isinstance(record, Instance):
        result["osparams_private"] = _redacted(record.osparams_private)
    elif isinstance(record, Cluster):
        result["osparams_private_cluster"] = _redacted(record.osparams_private_cluster)
    elif isinstance(record, Disk):
        _hide_drbd_secret(result)
    return result


def _hide_drbd_secret(disk: dict[str, Any]) -> None:
    if disk.get("dev_type") == "drbd" and len(disk["logical_id"]) > _DRBD_SECRET:
        disk["logical_id"][_DRBD_SECRET] = None
    for child in disk.get("children", ()):
        _hide_drbd_secret(child)


def resolve(snapshot: Snapshot, pointer: str) -> Any:
    """Return the part of the configuration at a JSON pointer (RFC 6901).

    Only the records on the way are converted, whatever the size of the cluster.

    Raises:
        LookupError: there is no such part, or the pointer is malformed.
        TooLargeError: the part has more records than fit in an answer.
    """
    if pointer and not pointer.startswith("/"):
        raise LookupError(pointer)
    parts = [_unescaped(part) for part in pointer.split("/")[1:]]
    if not parts:
        return _whole(snapshot)
    top, *rest = parts
    if top not in _TABLES:
        return _walk(_top_member(snapshot, top), rest)
    if not rest:
        return _table(snapshot, top)
    return _walk(document(snapshot.table(top)[rest[0]]), rest[1:])


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _top_member(snapshot: Snapshot, name: str) -> Any:
    if name == "cluster":
        return document(snapshot.cluster)
    cluster = snapshot.cluster
    return {
        "version": versions.CONFIG_VERSION,
        "serial_no": snapshot.revision,
        "ctime": cluster.ctime,
        "mtime": cluster.mtime,
    }[name]


def _table(snapshot: Snapshot, name: str) -> dict[str, Any]:
    rows = snapshot.table(name)
    if len(rows) > MAX_ROWS:
        raise TooLargeError(name)
    return {key: document(record) for key, record in rows.items()}


def _whole(snapshot: Snapshot) -> dict[str, Any]:
    result = {
        name: _top_member(snapshot, name)
        for name in ("version", "cluster", "serial_no", "ctime", "mtime")
    }
    return result | {name: _table(snapshot, name) for name in _TABLES}


def _walk(value: Any, parts: list[str]) -> Any:
    for part in parts:
        if isinstance(value, dict):
            value = value[part]
        elif isinstance(value, list):
            # Decimal without sign or leading zeros, as the RFC wants it.
            if not (part.isascii() and part.isdigit()) or str(int(part)) != part:
                raise LookupError(part)
            value = value[int(part)]
        else:
            raise LookupError(part)  # noqa: TRY004 - there is no such part
    return value


# Index of the instances' addresses: link and IP address to instance.
#
# The index follows the snapshot change by change, so its cost depends only on the
# changes unless the cluster's default NIC parameters change.

#: Name of the cluster's only set of NIC parameters.
_DEFAULT = "default"


def default_link(snapshot: Snapshot) -> str:
    """Return the link of NICs that have none of their own."""
    return str(snapshot.cluster.nicparams.get(_DEFAULT, {}).get("link", ""))


class AddressIndex:
    """Instances by link and address; of several, the one that was set last counts."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Build the index of a snapshot."""
        self._default = default_link(snapshot)
        self._instances: dict[str, dict[str, dict[str, None]]] = {}
        for key, record in snapshot.instances.items():
            self._put(key, record)

    def find(self, link: str, address: str) -> str | None:
        """Return the uuid of the instance with an address."""
        owners = self._instances.get(link, {}).get(address)
        return next(reversed(owners)) if owners else None

    def on_link(self, link: str) -> list[str]:
        """Return the addresses on a link."""
        return list(self._instances.get(link, ()))

    def apply(
        self, before: Snapshot, after: Snapshot, updates: Iterable[Update]
    ) -> bool:
        """Apply changes; return false if the index must be built again instead."""
        if default_link(after) != self._default:
            return False
        for update in updates:
            if update.table != "instances":
                continue
            old = before.instances.get(update.key)
            if old is not None:
                self._drop(update.key, old)
            if isinstance(update.record, Instance):
                self._put(update.key, update.record)
        return True

    def _entries(self, record: Instance) -> Iterator[tuple[str, str]]:
        for nic in record.nics:
            if nic.ip:
                yield str(nic.nicparams.get("link", self._default)), nic.ip

    def _put(self, key: str, record: Instance) -> None:
        for link, address in self._entries(record):
            self._instances.setdefault(link, {}).setdefault(address, {})[key] = None

    def _drop(self, key: str, record: Instance) -> None:
        for link, address in self._entries(record):
            owners = self._instances.get(link, {}).get(address, {})
            owners.pop(key, None)
            if not owners:
                self._instances.get(link, {}).pop(address, None)
                if not self._instances.get(link):
                    self._instances.pop(link, None)


R = TypeVar("R", bound=Record)

#: Answers kept until the next change, the bytes of one, and of its search key.
_MAX_KEPT: Final = 10_000
_MAX_KEPT_BYTES: Final = 10_000
_MAX_KEY: Final = 256
#: Addresses that one request may look up: more do not fit a datagram.
_MAX_ADDRESSES: Final = 4096
_DRBD_MINOR: Final = 3
_NO_CONFIGURATION: Final = (
    "this node has no configuration: it is not a master candidate, or has just become"
    " one"
)


class _QueryError(Exception):
    """Answer of status 1: an error number or a text."""

    def __init__(self, answer: int | str) -> None:
        super().__init__(answer)
        self.answer = answer


def _argument_error() -> _QueryError:
    return _QueryError(confd.CONFD_ERROR_ARGUMENT)


def _unknown_entry() -> _QueryError:
    return _QueryError(confd.CONFD_ERROR_UNKNOWN_ENTRY)


class Projection:
    """The part of the state that queries need, as of one revision. Not thread-safe.

    Without a snapshot, every query except a ping is answered with an error.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._snapshot = snapshot
        self._index = None if snapshot is None else AddressIndex(snapshot)
        self._kept: dict[tuple[int, str | None], bytes] = {}

    @property
    def snapshot(self) -> Snapshot:
        """The configuration."""
        if self._snapshot is None:
            raise _QueryError(_NO_CONFIGURATION)
        return self._snapshot

    @property
    def index(self) -> AddressIndex:
        """The addresses of instances."""
        if self._index is None:
            raise _QueryError(_NO_CONFIGURATION)
        return self._index

    @property
    def is_enabled(self) -> bool:
        """Whether there is a configuration."""
        return self._snapshot is not None

    def advance(
        self, snapshot: Snapshot | None, updates: Iterable[Update] | None = None
    ) -> None:
        """Go to another snapshot.

        Args:
            snapshot: the new one; None if this node has none any more.
            updates: all changes since the last one, None if unknown.
        """
        before, self._snapshot = self._snapshot, snapshot
        self._kept.clear()
        if snapshot is None:
            self._index = None
        elif (
            before is None
            or self._index is None
            or updates is None
            or not self._index.apply(before, snapshot, updates)
        ):
            self._index = AddressIndex(snapshot)

    def message(self, query: Query) -> bytes:
        """Return the inner text of the reply; that of a simple query is kept.

        Raises:
            Dropped: the query is of an unknown kind, or its answer too large.
        """
        key = query.query
        if key is not None and not (type(key) is str and len(key) <= _MAX_KEY):
            return encode_message(answer(self, query))
        where = (query.type, key)
        message = self._kept.get(where)
        if message is None:
            message = encode_message(answer(self, query))
            if len(self._kept) < _MAX_KEPT and len(message) <= _MAX_KEPT_BYTES:
                self._kept[where] = message
        return message


def answer(projection: Projection, query: Query) -> Reply:
    """Return the reply to a query.

    Raises:
        Dropped: the query is of an unknown kind, or its answer too large.
    """
    function = _ANSWERS.get(query.type)
    if function is None:
        raise Dropped("request")
    serial = 0
    try:
        value = function(projection, query.query)
        status = confd.CONFD_REPL_STATUS_OK
        if query.type != confd.CONFD_REQ_PING:
            serial = projection.snapshot.revision
    except _QueryError as err:
        status, value = confd.CONFD_REPL_STATUS_ERROR, err.answer
    except TooLargeError as err:
        raise Dropped("reply too large") from err
    return Reply(confd.CONFD_PROTOCOL_VERSION, status, value, serial)


# Nodes and the cluster
def _ping(_projection: Projection, _key: Any) -> int:
    return versions.CONFIG_VERSION


def _find(snapshot: Snapshot, rows: Mapping[str, R], table: str, name: Any) -> R:
    if not isinstance(name, str):
        raise _argument_error()
    uuid = lookup.find(snapshot, table, name)
    if uuid is None:
        raise _unknown_entry()
    return rows[uuid]


def _node(projection: Projection, name: Any) -> Node:
    snapshot = projection.snapshot
    return _find(snapshot, snapshot.nodes, "nodes", name)


def _instance(projection: Projection, name: Any) -> Instance:
    snapshot = projection.snapshot
    return _find(snapshot, snapshot.instances, "instances", name)


def _node_role(projection: Projection, key: Any) -> int:
    node = _node(projection, key)
    if node.uuid == projection.snapshot.cluster.master_node:
        return confd.CONFD_NODE_ROLE_MASTER
    if node.drained:
        return confd.CONFD_NODE_ROLE_DRAINED
    if node.offline:
        return confd.CONFD_NODE_ROLE_OFFLINE
    if node.master_candidate:
        return confd.CONFD_NODE_ROLE_CANDIDATE
    return confd.CONFD_NODE_ROLE_REGULAR


def _cluster_master(projection: Projection, key: Any) -> str | list[str]:
    snapshot = projection.snapshot
    cluster = snapshot.cluster
    master = snapshot.nodes[cluster.master_node]
    if key is None:
        return master.name
    values = {
        confd.CONFD_REQFIELD_NAME: master.name,
        confd.CONFD_REQFIELD_IP: cluster.master_ip,
        confd.CONFD_REQFIELD_MNODE_PIP: master.primary_ip,
    }
    fields = key.get(confd.CONFD_REQQ_FIELDS) if isinstance(key, dict) else None
    if not isinstance(fields, list):
        raise _argument_error()
    if not all(type(field) is int and field in values for field in fields):
        raise _argument_error()
    return [values[field] for field in fields]


def _node_addresses(projection: Projection, _key: Any) -> list[str]:
    nodes = projection.snapshot.nodes
    return [nodes[uuid].primary_ip for uuid in sorted(nodes, reverse=True)]


def _candidate_addresses(projection: Projection, _key: Any) -> list[str]:
    nodes = projection.snapshot.nodes
    return [
        nodes[uuid].primary_ip
        for uuid in sorted(nodes, reverse=True)
        if nodes[uuid].master_candidate
    ]


# Instances by address
def _instance_addresses(projection: Projection, key: Any) -> list[str]:
    if key is None:
        return projection.index.on_link(default_link(projection.snapshot))
    if not isinstance(key, str):
        raise _argument_error()
    return projection.index.on_link(key)


def _node_of_instance(projection: Projection, key: Any) -> Any:
    snapshot = projection.snapshot
    if not isinstance(key, dict):
        raise _argument_error()
    link = key.get(confd.CONFD_REQQ_LINK)
    if link is None:
        link = default_link(snapshot)
    single = key.get(confd.CONFD_REQQ_IP)
    several = key.get(confd.CONFD_REQQ_IPLIST, [])
    if single is not None:
        several = [single]
    if not (isinstance(link, str) and isinstance(several, list)):
        raise _argument_error()
    if not all(isinstance(item, str) for item in several):
        raise _argument_error()
    if single is not None:
        return _address_of_node(projection, link, single)
    if len(several) > _MAX_ADDRESSES:
        raise TooLargeError("addresses")
    return [_element(projection, link, address) for address in several]


def _element(projection: Projection, link: str, address: str) -> tuple[int, Any, int]:
    try:
        value = _address_of_node(projection, link, address)
    except _QueryError as err:
        return confd.CONFD_REPL_STATUS_ERROR, err.answer, 0
    return confd.CONFD_REPL_STATUS_OK, value, projection.snapshot.revision


def _address_of_node(projection: Projection, link: str, address: str) -> str:
    snapshot = projection.snapshot
    uuid = projection.index.find(link, address)
    if uuid is None:
        raise _unknown_entry()
    node = snapshot.nodes.get(snapshot.instances[uuid].primary_node)
    if node is None:
        raise _QueryError(confd.CONFD_ERROR_INTERNAL)
    return node.primary_ip


# Instances and disks of a node
def _node_drbd(projection: Projection, key: Any) -> list[list[Any]]:
    snapshot = projection.snapshot
    node = _node(projection, key)
    rows: list[list[Any]] = []
    for disk_uuid in sorted(snapshot.disks_on_node(node.uuid)):
        disk, owner = snapshot.disks[disk_uuid], snapshot.disk_owner(disk_uuid)
        if disk.dev_type != "drbd" or owner is None:
            continue
        instance = snapshot.instances[owner]
        ends = disk.logical_id[:2]
        position = ends.index(node.uuid)
        peer = snapshot.nodes[ends[1 - position]]
        is_primary = instance.primary_node == node.uuid
        rows.append(
            [
                node.name,
                disk.logical_id[_DRBD_MINOR + position],
                instance.name,
                f"disk/{instance.disks.index(disk_uuid)}",
                "primary" if is_primary else "secondary",
                peer.name,
            ]
        )
    return sorted(rows, key=lambda row: row[1])


def _node_instances(projection: Projection, key: Any) -> list[list[Any]]:
    snapshot = projection.snapshot
    node = _node(projection, key)
    groups = (
        snapshot.primary_instances(node.uuid),
        snapshot.secondary_instances(node.uuid),
    )
    if sum(map(len, groups)) > MAX_ROWS:
        raise TooLargeError(node.name)
    return [
        [document(snapshot.instances[uuid]) for uuid in sorted(uuids)]
        for uuids in groups
    ]


def _instance_disks(projection: Projection, key: Any) -> list[Any]:
    instance = _instance(projection, key)
    disks = projection.snapshot.instance_disks(instance)
    return [document(disk) for disk in disks]


# The rest of the configuration
def _config_query(projection: Projection, key: Any) -> Any:
    snapshot = projection.snapshot
    if not isinstance(key, str):
        raise _argument_error()
    try:
        return resolve(snapshot, key)
    except LookupError as err:
        raise _argument_error() from err


def _data_collectors(projection: Projection, _key: Any) -> dict[str, Any]:
    return projection.snapshot.cluster.data_collectors


_ANSWERS: Final[dict[int, Callable[[Projection, Any], Any]]] = {
    confd.CONFD_REQ_PING: _ping,
    confd.CONFD_REQ_NODE_ROLE_BYNAME: _node_role,
    confd.CONFD_REQ_NODE_PIP_BY_INSTANCE_IP: _node_of_instance,
    confd.CONFD_REQ_CLUSTER_MASTER: _cluster_master,
    confd.CONFD_REQ_NODE_PIP_LIST: _node_addresses,
    confd.CONFD_REQ_MC_PIP_LIST: _candidate_addresses,
    confd.CONFD_REQ_INSTANCES_IPS_LIST: _instance_addresses,
    confd.CONFD_REQ_NODE_DRBD: _node_drbd,
    confd.CONFD_REQ_NODE_INSTANCES: _node_instances,
    confd.CONFD_REQ_INSTANCE_DISKS: _instance_disks,
    confd.CONFD_REQ_CONFIG_QUERY: _config_query,
    confd.CONFD_REQ_DATA_COLLECTORS: _data_collectors,
}
