"""The cluster as repairs need it, queried from the master and checked."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import iallocator
from ganeti.decisions.htools.model import json_reader
from ganeti.decisions.htools.model.loaders import query
from ganeti.decisions.repair import diagnosis, tags
from ganeti.decisions.repair.diagnosis import InstanceHealth, NodeHealth
from ganeti.model.objects import allocators
from ganeti.protocols import luxi

_INSTANCE: Final = (
    *("name", "pnode", "snodes", "tags", "disk_template", "admin_state"),
    *("be/always_failover", "forthcoming"),
)
#: Of an instance that is looked at alone: whether it runs, which its node is asked for.
_ONE: Final = (*_INSTANCE, "status")
_DOWN: Final = "ERROR_down"
_NODE: Final = ("name", "offline", "drained", "group.uuid")
_GROUP: Final = ("uuid", "name", "tags")

Row = dict[str, Any]
_TEXT: Final = frozenset({str})


@dataclasses.dataclass(frozen=True)
class ClusterView:
    """Objects and their tags.

    Attributes:
        allocators: type of request -> the name with which repairs ask for new nodes.
        cluster_tags: those of the cluster.
        groups: uuid -> fields name and tags.
        nodes: name -> fields offline, drained and group.uuid.
        instances: name -> fields; without those that are only reserved.
    """

    allocators: Mapping[str, str]
    cluster_tags: Sequence[str]
    groups: Mapping[str, Row]
    nodes: Mapping[str, Row]
    instances: Mapping[str, Row]

    def policy(self, name: str, own: Sequence[str], now: float) -> tags.RepairPolicy:
        """Return the permitted repairs of an instance that has some tags."""
        node = self.nodes.get(self.instances[name]["pnode"], {})
        group = self.groups.get(node.get("group.uuid", ""), {})
        return tags.policy((own, group.get("tags") or (), self.cluster_tags), now)

    def health(self, name: str) -> InstanceHealth | None:
        """Return an instance and the health of its nodes; None if they are unknown."""
        row = self.instances[name]
        primary = self._node_health(row["pnode"])
        if primary is None:
            return None
        seconds = row["snodes"] or ()
        return InstanceHealth(
            name=name,
            template=row["disk_template"],
            primary=primary,
            secondary=self._node_health(seconds[0]) if seconds else None,
            up=row["admin_state"] == "up",
            always_failover=bool(row["be/always_failover"]),
        )

    def is_down(self, name: str) -> bool:
        """Return whether an instance should run and does not; false if not asked."""
        return self.instances[name].get("status") == _DOWN

    def is_idle(self, name: str) -> bool:
        """Return whether an instance has good nodes and no tags about repairs.

        There is nothing to decide about it, whatever the policy is.
        """
        row = self.instances[name]
        good = self._good_nodes
        return (
            row["pnode"] in good
            and good.issuperset(row["snodes"] or ())
            and not any(tag.startswith(tags.PREFIX) for tag in row["tags"])
        )

    @functools.cached_property
    def _good_nodes(self) -> frozenset[str]:
        good = NodeHealth.GOOD
        return frozenset(n for n in self.nodes if self._node_health(n) is good)

    def _node_health(self, name: str | None) -> NodeHealth | None:
        node = self.nodes.get(name or "")
        if node is None:
            return None
        if node["offline"]:
            return NodeHealth.OFFLINE
        return NodeHealth.DRAINED if node["drained"] else NodeHealth.GOOD


def load(client: luxi.Client, name: str | None = None) -> ClusterView:
    """Return the present state of the cluster.

    Args:
        client: of the master daemon.
        name: of the only instance that is wanted; None for all. The view of an
            instance that does not exist any more has no instances.

    Raises:
        DataError: an answer is malformed.
        GenericError: the master does not answer.
    """
    if name is not None:
        instances = _existing(client, "instance", _ONE, [name])
    else:
        instances = _table(client, "instance", _INSTANCE, None)
    nodes: list[str] | None = None
    if name is not None:
        nodes = [
            node for row in instances for node in (row["pnode"], *(row["snodes"] or ()))
        ]
    info = client.call("QueryClusterInfo")
    json_reader.JsonPart(info, "cluster", _source(client)).texts("tags", optional=True)
    groups = _table(client, "group", _GROUP, None)
    if nodes is None:
        rows = _table(client, "node", _NODE, None)
    else:
        rows = _existing(client, "node", _NODE, nodes)
    return ClusterView(
        allocators=_allocators(info.get("default_iallocator") or ""),
        cluster_tags=tuple(info.get("tags") or ()),
        groups={row["uuid"]: row for row in groups},
        nodes={row["name"]: row for row in rows},
        instances={row["name"]: row for row in instances if not row["forthcoming"]},
    )


def _allocators(setting: str) -> dict[str, str]:
    """Return the name for each type: that of the default ones where there are some."""
    name = iallocator.DEFAULT_IALLOCATOR_SHORTCUT
    return {
        kind: name if allocators.chosen(name, setting, kind) else iallocator.IALLOC_HAIL
        for kind in diagnosis.REQUEST_TYPES
    }


def _source(client: luxi.Client) -> str:
    return f"LUXI {client.path}"


def _existing(
    client: luxi.Client, kind: str, fields: tuple[str, ...], names: Sequence[str]
) -> list[Row]:
    """Return objects by name; none if one was removed since its name was queried."""
    if not names:
        return []
    qfilter = ["|", *(["==", "name", name] for name in names)]
    try:
        return _table(client, kind, fields, qfilter)
    except errors.OpPrereqError:
        return []


def _table(
    client: luxi.Client, kind: str, names: tuple[str, ...], qfilter: list[Any] | None
) -> list[Row]:
    answer = client.call("Query", [kind, list(names), qfilter])
    source = _source(client)
    rows = query.objects(answer, names, source)
    for row in rows:
        _check(row, kind, source)
    return rows


def _check(row: Row, kind: str, source: str) -> None:
    """Refuse an object with a malformed name or malformed tags."""
    lists = (row.get("tags", []), row.get("snodes") or [])
    if type(row["name"]) is str and all(map(_are_texts, lists)):
        return
    part = json_reader.JsonPart(row, kind, source)
    part.text("name")
    if "tags" in row:
        part.texts("tags")
    if part.has("snodes"):
        part.texts("snodes")


def _are_texts(value: Any) -> bool:
    return type(value) is list and {*map(type, value)} <= _TEXT
