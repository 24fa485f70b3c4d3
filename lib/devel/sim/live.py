"""Descriptions of real clusters, from a master's answers to queries.

Callers send the queries. Only decisions of automatons count, so addresses, networks,
parameters of hypervisors and operating systems, and secrets are not asked for.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.base.constants.protocols import oob
from ganeti.decisions.repair import duties
from ganeti.devel.sim.description import (
    ETCD,
    FILE,
    META_MIB,
    ClusterDescription,
    GroupDescription,
    InstanceDescription,
    NodeDescription,
)

#: Templates whose disks take space of the nodes that have them.
_LOCAL: Final = frozenset({"drbd", "plain", "file"})
_MICROSECONDS: Final = 1_000_000
_DIAGNOSE: Final = "diagnose"
#: Sizes of a node that does not report them.
_ASSUMED: Final = NodeDescription(name="")

_Row = TypeVar("_Row", bound=msgspec.Struct)


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a node group."""

    uuid: str
    name: str
    alloc_policy: str
    custom_ipolicy: dict[str, Any]
    tags: tuple[str, ...]


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a node."""

    uuid: str
    name: str
    group: str
    master_candidate: bool
    master_capable: bool
    vm_capable: bool
    offline: bool
    drained: bool
    tags: tuple[str, ...]
    helper: str | None = msgspec.field(default=None, name="ndp/oob_program")
    powered: bool | None = None
    boot_id: str | None = msgspec.field(default=None, name="bootid")
    memory: int | None = msgspec.field(default=None, name="mtotal")
    own_memory: int | None = msgspec.field(default=None, name="mnode")
    free_disk: int | None = msgspec.field(default=None, name="dfree")
    cpus: int | None = msgspec.field(default=None, name="ctotal")


class _Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an instance."""

    uuid: str
    name: str
    forthcoming: bool
    primary: str | None = msgspec.field(name="pnode")
    secondaries: tuple[str, ...] | None = msgspec.field(default=(), name="snodes")
    template: str = msgspec.field(name="disk_template")
    sizes: tuple[int, ...] | None = msgspec.field(default=(), name="disk.sizes")
    state: str = msgspec.field(name="admin_state")
    runs: bool | None = msgspec.field(default=None, name="oper_state")
    most_memory: int = msgspec.field(name="be/maxmem")
    least_memory: int = msgspec.field(name="be/minmem")
    vcpus: int = msgspec.field(name="be/vcpus")
    always_failover: bool = msgspec.field(name="be/always_failover")
    auto_balance: bool = msgspec.field(name="be/auto_balance")
    tags: tuple[str, ...]


class _Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Some members of the answer to ``QueryClusterInfo``."""

    name: str
    master: str
    tags: tuple[str, ...]
    allocator: str = msgspec.field(name="default_iallocator")
    allocator_params: dict[str, Any] = msgspec.field(name="default_iallocator_params")
    ipolicy: dict[str, Any]
    pool_size: int = msgspec.field(name="candidate_pool_size")
    diagnose: str = msgspec.field(name="diagnose_data_collector_filename")
    active: dict[str, bool] = msgspec.field(name="enabled_data_collectors")
    interval: dict[str, float] = msgspec.field(name="data_collector_interval")


class _Freeze(msgspec.Struct, frozen=True):
    """A freeze of automatons."""

    reason: str


class _Automation(msgspec.Struct, frozen=True, kw_only=True):
    """Some members of the answer to ``QueryAutomation``."""

    limits: dict[str, float]
    freeze: _Freeze | None = None
    node_death: bool = False


def _names(row: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(row))


#: Fields to query, by resource.
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "group": _names(_Group),
    "node": _names(_Node),
    "instance": _names(_Instance),
}


class Answers(NamedTuple):
    """A master's answers.

    Attributes:
        groups, nodes, instances: rows with the fields of `FIELDS`; None for no value.
        info: of ``QueryClusterInfo``.
        automation: of ``QueryAutomation``.
        copies: of ``QueryCopies``.
    """

    groups: Sequence[Mapping[str, Any]]
    nodes: Sequence[Mapping[str, Any]]
    instances: Sequence[Mapping[str, Any]]
    info: Mapping[str, Any]
    automation: Mapping[str, Any]
    copies: Mapping[str, Any]


class LiveCluster(NamedTuple):
    """A cluster that was read.

    Attributes:
        name: of the cluster.
        description: of it.
        names: kind -> name, first part of it or UUID of an object -> its name; the
            kinds are ``node``, ``group`` and ``instance``.
        notes: what the description lacks or assumes, as sentences.
    """

    name: str
    description: ClusterDescription
    names: Mapping[str, Mapping[str, str]]
    notes: tuple[str, ...]


def read(answers: Answers) -> LiveCluster:
    """Describe a cluster.

    Raises:
        ProtocolError: an answer has another form than wanted.
    """
    groups = [_row(_Group, "group", row) for row in answers.groups]
    nodes = [_row(_Node, "node", row) for row in answers.nodes]
    rows = [_row(_Instance, "instance", row) for row in answers.instances]
    info = _row(_Cluster, "cluster", answers.info)
    automation = _row(_Automation, "automation", answers.automation)
    left_out = {row.name: why for row in rows if (why := _obstacle(row))}
    instances = [row for row in rows if row.name not in left_out]
    used = _usage(rows, left_out)
    populated = {node.group for node in nodes}
    description = ClusterDescription(
        nodes=tuple(_node(node, used[node.name]) for node in nodes),
        instances=tuple(_instance(row) for row in instances),
        groups=tuple(_group(group) for group in groups if group.name in populated),
        master=info.master,
        tags=info.tags,
        allocator=info.allocator,
        allocator_params=info.allocator_params,
        node_death=automation.node_death,
        limits=automation.limits,
        freeze=_reason(automation.freeze),
        diagnose=bool(info.diagnose) and info.active.get(_DIAGNOSE, False),
        diagnose_s=info.interval.get(_DIAGNOSE, 30.0 * _MICROSECONDS) / _MICROSECONDS,
        ipolicy=info.ipolicy,
        candidate_pool_size=info.pool_size,
        store=FILE if answers.copies.get("store", FILE) == FILE else ETCD,
        maintenance=duties.changed(
            {},
            {
                name: answers.info[name]
                for name in duties.SETTINGS
                if name in answers.info
            },
        ),
    )
    names = {
        "group": _spellings(groups),
        "node": _spellings(nodes),
        "instance": _spellings(rows),
    }
    return LiveCluster(info.name, description, names, tuple(_notes(nodes, left_out)))


def _row(form: type[_Row], kind: str, row: Mapping[str, Any]) -> _Row:
    try:
        return msgspec.convert(row, form)
    except msgspec.ValidationError as err:
        name = row.get("name", "") if isinstance(row, Mapping) else ""
        raise errors.ProtocolError(f"{kind} {name}: {err}".replace(" :", ":")) from err


def _spellings(rows: Sequence[_Group | _Node | _Instance]) -> dict[str, str]:
    """Return the spellings of each name; a first part must belong to one name."""
    parts: dict[str, set[str]] = {}
    for row in rows:
        labels = row.name.split(".")
        for count in range(1, len(labels)):
            parts.setdefault(".".join(labels[:count]), set()).add(row.name)
    short = {part: min(names) for part, names in parts.items() if len(names) == 1}
    whole = {row.uuid: row.name for row in rows} | {row.name: row.name for row in rows}
    return short | whole


def _reason(freeze: _Freeze | None) -> str:
    """Return why automatons are frozen; empty if they are not."""
    return "" if freeze is None else freeze.reason or "no reason given"


def _obstacle(row: _Instance) -> str:
    """Return why an instance cannot be simulated; empty if it can."""
    if row.forthcoming or not row.primary:
        return "it is a reservation"
    if row.template not in disks.DISK_TEMPLATES:
        return f"its disk template is {row.template}"
    if (row.template == "drbd") != bool(row.secondaries):
        return "its secondary node does not fit its disk template"
    return ""


class _Use(msgspec.Struct):
    """Resources that instances use of a node, in MiB.

    Attributes:
        memory: of guests that are simulated.
        other_memory: of guests that are not.
        disk: of disks that are simulated.
    """

    memory: int = 0
    other_memory: int = 0
    disk: int = 0


def _usage(
    rows: Sequence[_Instance], left_out: Mapping[str, str]
) -> Mapping[str, _Use]:
    used: dict[str, _Use] = collections.defaultdict(_Use)
    for row in rows:
        is_left_out = row.name in left_out
        # A node that does not answer says nothing about its guests.
        runs = row.state == "up" if row.runs is None else row.runs
        if row.primary and runs and is_left_out:
            used[row.primary].other_memory += 0 if row.forthcoming else row.most_memory
        elif row.primary and runs:
            used[row.primary].memory += row.most_memory
        if is_left_out or row.template not in _LOCAL:
            continue
        extra = META_MIB if row.template == "drbd" else 0
        for node in (row.primary, *(row.secondaries or ())):
            if node:
                used[node].disk += sum(size + extra for size in row.sizes or ())
    return used


def _node(node: _Node, use: _Use) -> NodeDescription:
    own = (node.own_memory or 0) + use.other_memory
    free_disk = _ASSUMED.disk_mib if node.free_disk is None else node.free_disk
    return NodeDescription(
        name=node.name,
        group=node.group,
        # The guests run, so there is memory for them.
        memory_mib=max(node.memory or _ASSUMED.memory_mib, own + use.memory),
        own_memory_mib=own,
        disk_mib=free_disk + use.disk,
        cpus=node.cpus or _ASSUMED.cpus,
        candidate=node.master_candidate,
        master_capable=node.master_capable,
        vm_capable=node.vm_capable,
        offline=node.offline,
        drained=node.drained,
        helper=node.helper not in (None, "", oob.OOB_OPT_OUT),
        answers=_answers(node),
        powered=node.powered is not False,
        tags=node.tags,
    )


def _answers(node: _Node) -> bool:
    """Return whether a node answered; one without guests is not asked."""
    return node.boot_id is not None or not node.vm_capable


def _instance(row: _Instance) -> InstanceDescription:
    return InstanceDescription(
        name=row.name,
        primary=row.primary or "",
        secondary=(row.secondaries or ("",))[0],
        template=row.template,
        memory_mib=row.most_memory,
        min_memory_mib=row.least_memory,
        vcpus=row.vcpus,
        disks_mib=row.sizes or (),
        state=row.state,
        runs=row.runs,
        always_failover=row.always_failover,
        auto_balance=row.auto_balance,
        tags=row.tags,
    )


def _group(group: _Group) -> GroupDescription:
    return GroupDescription(
        name=group.name,
        tags=group.tags,
        alloc_policy=group.alloc_policy,
        ipolicy=group.custom_ipolicy,
    )


def _notes(nodes: Sequence[_Node], left_out: Mapping[str, str]) -> Iterator[str]:
    for node in nodes:
        if not node.offline and not _answers(node):
            yield f"node {node.name} does not answer, so it begins switched off"
        elif not node.offline and node.memory is None and node.vm_capable:
            yield (
                f"node {node.name} does not report its memory; {_ASSUMED.memory_mib}"
                " MiB are assumed"
            )
    for name, why in left_out.items():
        yield f"instance {name} is left out: {why}"
