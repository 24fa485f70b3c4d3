"""Clusters from a master's answers: rows of LUXI queries, objects of REST.

Callers send the queries. Positions follow the order of the answers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.decisions.htools.model.cluster import (
    MOVABLE_TEMPLATES,
    NONE,
    RUNNING,
    STATES,
    Cluster,
    DataError,
    Group,
    Instance,
    Node,
    lookup,
)
from ganeti.decisions.htools.model.json_reader import JsonPart, read_policy
from ganeti.decisions.htools.model.policy import TEMPLATES, AllocPolicy

_NODE: Final = (
    "name mtotal mnode mfree dtotal dfree ctotal cnos offline drained vm_capable"
    " ndp/spindle_count group.uuid tags ndp/exclusive_storage sptotal spfree"
    " ndp/cpu_speed"
)
_INSTANCE: Final = (
    "name disk_usage be/memory be/vcpus status pnode snodes tags be/auto_balance"
    " disk_template be/spindle_use disk.sizes disk.spindles forthcoming oper_ram"
    " hv/shared_directories"
)
#: Fields to query, by resource.
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "group": ("uuid", "name", "alloc_policy", "ipolicy", "tags"),
    "node": tuple(_NODE.split()),
    "instance": tuple(_INSTANCE.split()),
}
#: UUID of the group of a node that reports no group.
_NO_GROUP: Final = "00000000-0000-0000-0000-000000000000"
_NORMAL: Final = 0
#: Fields that only the node itself can report.
_REPORTED: Final = ("mtotal", "mnode", "mfree", "ctotal")


class QueryAnswers(msgspec.Struct, frozen=True):
    """A master's answers: objects with the fields of `FIELDS`, and cluster data.

    A field without a value is None. ``source`` names the master in messages.
    """

    source: str
    groups: Sequence[Mapping[str, Any]]
    nodes: Sequence[Mapping[str, Any]]
    instances: Sequence[Mapping[str, Any]]
    info: Mapping[str, Any]


def objects(answer: Any, fields: Sequence[str], source: str) -> list[dict[str, Any]]:
    """Convert a query's table into objects; a field without a value becomes None.

    Raises:
        DataError: the answer is not such a table.
    """
    rows = answer.get("data") if isinstance(answer, Mapping) else None
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise DataError(f"{source}: wanted a table, found {answer!r:.80}")
    try:
        return [
            {
                name: value if status == _NORMAL else None
                for name, (status, value) in zip(fields, row, strict=True)
            }
            for row in rows
        ]
    except (TypeError, ValueError):
        # Some cell is malformed: find it.
        return [dict(_cells(row, fields, source)) for row in rows]


def _cells(row: Any, fields: Sequence[str], source: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(row, Sequence) or len(row) != len(fields):
        raise DataError(
            f"{source}: wanted a row of {len(fields)} cells, found {row!r:.80}"
        )
    for name, cell in zip(fields, row, strict=True):
        if not isinstance(cell, Sequence) or len(cell) != 2:
            raise DataError(
                f"{source}: {name}: wanted a status and a value, found {cell!r:.80}"
            )
        yield name, cell[1] if cell[0] == _NORMAL else None


def from_rest(
    source: str,
    groups: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    instances: Sequence[Mapping[str, Any]],
    *,
    info: Mapping[str, Any],
) -> QueryAnswers:
    """Convert REST objects, whose parameters are nested, into fields of queries."""
    return QueryAnswers(
        source,
        groups,
        [dict(_flat_node(node)) for node in nodes],
        [dict(_flat_instance(inst)) for inst in instances],
        info,
    )


def _nested(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    member = item.get(key)
    return member if isinstance(member, Mapping) else {}


def _flat_node(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    params = _nested(node, "ndparams")
    yield from node.items()
    yield "group.uuid", node.get("group.uuid") or _NO_GROUP
    for name in ("spindle_count", "exclusive_storage"):
        yield f"ndp/{name}", params.get(name)


def _flat_instance(inst: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    params = _nested(inst, "beparams")
    yield from inst.items()
    for name in ("vcpus", "auto_balance", "spindle_use"):
        yield f"be/{name}", params.get(name)
    shares = "shared_directories"
    yield f"hv/{shares}", _nested(inst, "hvparams").get(shares)
    memory = params.get("memory")
    yield "be/memory", params.get("maxmem") if memory is None else memory


def read_cluster(
    answers: QueryAnswers, *, static_memory: int, offline: Iterable[str] = ()
) -> Cluster:
    """Build the cluster.

    Args:
        answers: of the master.
        static_memory: MiB assumed for a KVM node itself; 0 takes the reported value.
        offline: nodes to treat as offline; their reports may be missing.

    Raises:
        DataError: names the object, the field, what was wanted and found.
    """
    source = answers.source
    info = JsonPart(answers.info, "cluster", source)
    is_kvm = info.data.get("default_hypervisor") == "kvm"
    policy = read_policy(info.part("ipolicy"))
    groups = [_group(part) for part in _named(answers.groups, "group", source)]
    places = {group.uuid: place for place, group in enumerate(groups)}
    names = [str(node.get("name")) for node in answers.nodes]
    off = {lookup(names, name) for name in offline}
    reader = _Nodes(
        places, info.data.get("master"), static_memory if is_kvm else 0, off
    )
    nodes = [
        reader.read(part, place)
        for place, part in enumerate(_named(answers.nodes, "node", source))
    ]
    at = {node.name: place for place, node in enumerate(nodes)}
    instances = [
        _instance(part, at) for part in _named(answers.instances, "instance", source)
    ]
    return Cluster(
        tuple(groups),
        tuple(nodes),
        tuple(instances),
        info.texts("tags", optional=True),
        policy,
    )


def silent(nodes: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the nodes without which `read_cluster` refuses."""
    return frozenset(
        str(node.get("name"))
        for node in nodes
        if not node.get("offline")
        and node.get("vm_capable") is not False
        and any(node.get(key) is None for key in _REPORTED)
    )


def _named(
    items: Sequence[Mapping[str, Any]], kind: str, source: str
) -> Iterator[JsonPart]:
    """Return the objects with their names as paths; refuse duplicate names."""
    seen = set()
    for item in items:
        name = JsonPart(item, kind, source).text("name")
        part = JsonPart(item, f"{kind} {name}", source)
        if name in seen:
            raise part.wrong("name", "different names", name)
        seen.add(name)
        yield part


def _group(part: JsonPart) -> Group:
    return Group(
        name=part.text("name"),
        uuid=part.text("uuid"),
        alloc_policy=AllocPolicy(
            part.text("alloc_policy", [str(item) for item in AllocPolicy])
        ),
        tags=part.texts("tags", optional=True),
        policy=read_policy(part.part("ipolicy")),
    )


class _Nodes(msgspec.Struct, frozen=True):
    """Reader of the nodes of one cluster."""

    groups: Mapping[str, int]
    master: Any
    static_memory: int
    offline: set[int | None]

    def read(self, part: JsonPart, place: int) -> Node:
        name, group = part.text("name"), part.text("group.uuid")
        if group not in self.groups:
            raise part.wrong("group.uuid", "the uuid of a node group", group)
        is_silent = part.flag("offline", default=False) or not part.flag(
            "vm_capable", default=True
        )
        # Instances stay on a drained node for a while: its numbers count.
        is_off = part.flag("drained", default=False) or place in self.offline
        exclusive = _flag(part, "ndp/exclusive_storage")
        speed = "ndp/cpu_speed"
        node = Node(
            name=name,
            group=self.groups[group],
            total_memory=0.0,
            node_memory=0,
            free_memory=0,
            total_disk=0.0,
            free_disk=0,
            cpus=0.0,
            offline=True,
            master=name == self.master,
            spindles=_size(part, "ndp/spindle_count", 1),
            tags=part.texts("tags", optional=True),
            exclusive=exclusive,
            node_cpus=0,
            cpu_speed=part.number(speed, least=0) if part.has(speed) else 1.0,
        )
        lacks = not all(part.has(key) for key in _REPORTED)
        if is_silent or (is_off and lacks):
            return node
        return msgspec.structs.replace(self._live(node, part), offline=is_off)

    def _live(self, node: Node, part: JsonPart) -> Node:
        exclusive = node.exclusive
        return msgspec.structs.replace(
            node,
            offline=False,
            total_memory=_live(part, "mtotal"),
            node_memory=self.static_memory or int(_live(part, "mnode")),
            free_memory=int(_live(part, "mfree")),
            total_disk=float(_size(part, "dtotal", 0)),
            free_disk=_number(part, "dfree"),
            cpus=_live(part, "ctotal"),
            node_cpus=_size(part, "cnos", 1),
            spindles=_size(part, "sptotal", 0) if exclusive else node.spindles,
            free_spindles=_size(part, "spfree", 0) if exclusive else 0,
        )


def _live(part: JsonPart, key: str) -> float:
    """Return a number that only the node itself can report."""
    if not part.has(key):
        raise DataError(
            f"{part.source}: {part.path} does not report {key}: start its node daemon,"
            " or set the node offline to do without it"
        )
    return part.number(key, least=None if key == "mfree" else 0)


def _size(part: JsonPart, key: str, default: int) -> int:
    return part.size(key) if part.has(key) else default


def _number(part: JsonPart, key: str) -> int:
    return int(part.number(key)) if part.has(key) else 0


def _flag(part: JsonPart, key: str, *, default: bool = False) -> bool:
    return part.flag(key, default) if part.has(key) else default


def _instance(part: JsonPart, nodes: Mapping[str, int]) -> Instance:
    template = part.text("disk_template", TEMPLATES)
    sizes = part.data.get("disk.sizes") or []
    spindles = part.data.get("disk.spindles") or []
    known = len(spindles) == len(sizes) and None not in spindles
    ram = part.data.get("oper_ram")
    has_ram = isinstance(ram, int | float) and not isinstance(ram, bool)
    status = part.text("status", STATES)
    migrates = status not in RUNNING or not part.data.get("hv/shared_directories")
    return Instance(
        name=part.text("name"),
        memory=part.size("oper_ram" if has_ram else "be/memory"),
        disk=_size(part, "disk_usage", 0),
        vcpus=part.size("be/vcpus"),
        status=status,
        auto_balance=_flag(part, "be/auto_balance", default=True),
        primary=_place(part, "pnode", part.text("pnode"), nodes),
        secondary=_secondary(part, nodes),
        template=template,
        tags=part.texts("tags", optional=True),
        spindle_use=_size(part, "be/spindle_use", 1),
        spindles=sum(_whole(part, "disk.spindles", spindles)) if known else None,
        forthcoming=_flag(part, "forthcoming"),
        disks=_whole(part, "disk.sizes", sizes),
        movable=template in MOVABLE_TEMPLATES and migrates,
        migrates=migrates,
    )


def _whole(part: JsonPart, key: str, values: Any) -> tuple[int, ...]:
    """Return a list of sizes as a tuple, checked."""
    if not isinstance(values, Sequence) or not all(
        isinstance(value, int) and value >= 0 for value in values
    ):
        raise part.wrong(key, "a list of sizes", values)
    return tuple(values)


def _secondary(part: JsonPart, nodes: Mapping[str, int]) -> int:
    names = part.texts("snodes", optional=not part.has("snodes"))
    if not names:
        return NONE
    place = _place(part, "snodes", names[0], nodes)
    if names[0] == part.text("pnode"):
        raise part.wrong("snodes", "another node than the primary", names[0])
    return place


def _place(part: JsonPart, key: str, name: str, nodes: Mapping[str, int]) -> int:
    if name not in nodes:
        raise part.wrong(key, "a known node", name)
    return nodes[name]
