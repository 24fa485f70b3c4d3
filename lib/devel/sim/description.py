"""Descriptions of clusters, and the records and machines that they stand for.

A description has what decisions depend on, and nothing secret. It is the ``config`` of
a scenario, and what the command ``gnt-cluster simulate`` reads of a real cluster.
"""

import collections
import itertools
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import mond
from ganeti.bootstrap.init import initial_config
from ganeti.bootstrap.options import InitOptions
from ganeti.decisions.repair import duties
from ganeti.decisions.repair import limits as automation_limits
from ganeti.devel.sim.hardware import Machine
from ganeti.model import objects

_NAMESPACE: Final = uuid.UUID("6f1f3a52-8f0e-4a3b-9b7b-0d4f4b5d7a11")
_HELPER: Final = "/usr/lib/ganeti/oob-simulated"
_DIAGNOSE: Final = "simulated"
#: Octets of an address.
_OCTET: Final = 256
#: Places of the store.
FILE: Final = "file"
ETCD: Final = "etcd"
#: MiB of the metadata of a mirror.
META_MIB: Final = 128


class NodeDescription(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A node.

    Attributes:
        own_memory_mib: memory that the host itself needs.
        helper: it has an out-of-band helper.
        master_capable: it may become a candidate; None for the present candidates.
        answers: it has power.
        powered: recorded state of its power.
    """

    name: str
    group: str = "default"
    memory_mib: int = 32768
    own_memory_mib: int = 0
    disk_mib: int = 1048576
    cpus: int = 16
    candidate: bool = True
    master_capable: bool | None = None
    vm_capable: bool = True
    offline: bool = False
    drained: bool = False
    helper: bool = True
    answers: bool = True
    powered: bool = True
    tags: tuple[str, ...] = ()


class InstanceDescription(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """An instance; without ``runs`` it runs if it should, and its node answers."""

    name: str
    primary: str
    secondary: str = ""
    template: str = "drbd"
    memory_mib: int = 1024
    min_memory_mib: int = 0
    vcpus: int = 1
    disks_mib: tuple[int, ...] = (10240,)
    state: str = "up"
    runs: bool | None = None
    always_failover: bool = False
    auto_balance: bool = True
    tags: tuple[str, ...] = ()


class GroupDescription(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A node group."""

    name: str
    tags: tuple[str, ...] = ()
    alloc_policy: str = "preferred"
    ipolicy: dict[str, Any] = {}


class ClusterDescription(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A cluster.

    Attributes:
        nodes: its nodes; the first one is the master if ``master`` is empty.
        instances: its instances.
        groups: those with settings; others come from the nodes.
        master: name of the master node.
        tags: of the cluster.
        allocator: default allocators.
        allocator_params: their parameters.
        node_death: dead nodes are fenced.
        limits: of automatons.
        freeze: reason of a freeze; empty for none.
        diagnose: nodes report diagnoses.
        diagnose_s: seconds between two rounds of maintenance.
        ipolicy: instance policy; empty for the default.
        candidate_pool_size: wanted number of candidates; 0 for the present one.
        maintenance: duties of the maintenance daemon as in the record of the cluster.
        store: ``file``, or ``etcd`` with a server on each master candidate.
    """

    nodes: tuple[NodeDescription, ...]
    instances: tuple[InstanceDescription, ...] = ()
    groups: tuple[GroupDescription, ...] = ()
    master: str = ""
    tags: tuple[str, ...] = ()
    allocator: str = "hail"
    allocator_params: dict[str, Any] = {}
    node_death: bool = False
    limits: dict[str, float] = {}
    freeze: str = ""
    diagnose: bool = False
    diagnose_s: float = 30.0
    ipolicy: dict[str, Any] = {}
    candidate_pool_size: int = 0
    maintenance: dict[str, Any] = {}
    store: str = FILE


def read(data: bytes) -> ClusterDescription:
    """Return a description from JSON.

    Raises:
        OpPrereqError: it is malformed.
    """
    try:
        return msgspec.json.decode(data, type=ClusterDescription)
    except (msgspec.DecodeError, UnicodeError) as err:
        raise errors.OpPrereqError(
            f"description of a cluster: {err}", ecodes.ECODE_INVAL
        ) from err


def identity(kind: str, name: str) -> str:
    """Return the UUID of an object."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}/{name}"))


def check(description: ClusterDescription) -> None:
    """Check that the parts of a description fit together.

    Raises:
        OpPrereqError: they do not.
    """
    nodes = collections.Counter(node.name for node in description.nodes)
    names = collections.Counter(item.name for item in description.instances)
    groups = {node.group for node in description.nodes}
    problems = [
        *(f"node {name}: is there twice" for name, n in nodes.items() if n > 1),
        *(f"instance {name}: is there twice" for name, n in names.items() if n > 1),
        *(
            f"group {group.name}: has no nodes"
            for group in description.groups
            if group.name not in groups
        ),
        *(
            problem
            for name, value in description.limits.items()
            if (problem := automation_limits.problem(name, value))
        ),
        *(
            problem
            for item in description.instances
            if (problem := _instance_problem(item, nodes))
        ),
    ]
    if problem := duties.stored_problem(description.maintenance):
        problems.append(problem)
    if description.store not in (FILE, ETCD):
        problems.append(f"store: wanted {FILE} or {ETCD}, found {description.store!r}")
    if not nodes:
        problems.append("wanted at least one node, found none")
    elif description.master and description.master not in nodes:
        problems.append(f"master {description.master}: is no node")
    if problems:
        raise errors.OpPrereqError(
            f"description of a cluster: {problems[0]}", ecodes.ECODE_INVAL
        )


def _instance_problem(item: InstanceDescription, nodes: Mapping[str, int]) -> str:
    if item.template not in disk_constants.DISK_TEMPLATES:
        return f"instance {item.name}: {item.template!r} is no disk template"
    used = [name for name in (item.primary, item.secondary) if name]
    unknown = [name for name in used if name not in nodes]
    if unknown or not item.primary:
        return f"instance {item.name}: {', '.join(unknown) or 'no node'} is no node"
    if (item.template == "drbd") != bool(item.secondary) or len(set(used)) < len(used):
        return f"instance {item.name}: wanted two nodes for drbd, else one"
    if item.state not in ("up", "down", "offline"):
        return f"instance {item.name}: {item.state!r} is no state"
    return ""


def names(description: ClusterDescription) -> dict[str, set[str]]:
    """Return the names of all objects by kind: ``node``, ``group``, ``instance``."""
    return {
        "node": {node.name for node in description.nodes},
        "group": {node.group for node in description.nodes},
        "instance": {item.name for item in description.instances},
    }


def machines(description: ClusterDescription) -> list[Machine]:
    """Return the machines of the nodes."""
    return [
        Machine(
            name=node.name,
            memory_mib=node.memory_mib,
            own_memory_mib=node.own_memory_mib,
            disk_mib=node.disk_mib,
            cpus=node.cpus,
            is_on=node.answers and not node.offline,
        )
        for node in description.nodes
    ]


def snapshot(description: ClusterDescription, now: float) -> objects.Snapshot:
    """Return the configuration of a described cluster.

    Raises:
        OpPrereqError: the parts do not fit together, or a value is wrong.
    """
    check(description)
    groups = {group.name: group for group in description.groups}
    names = dict.fromkeys(node.group for node in description.nodes)
    records: list[tuple[str, str, objects.Record]] = [
        ("cluster", objects.CLUSTER_KEY, _cluster(description, now))
    ]
    records += [
        ("nodegroups", identity("group", name), _group(groups.get(name), name))
        for name in names
    ]
    records += [
        ("nodes", identity("node", node.name), _node(node, place))
        for place, node in enumerate(description.nodes)
    ]
    for table, record in _instances(description):
        records.append((table, record.uuid, record))
    updates = [objects.Update(*row) for row in records]
    return objects.Snapshot().apply(updates)


def master_of(description: ClusterDescription) -> str:
    """Return the name of the master node."""
    return description.master or description.nodes[0].name


def servers(description: ClusterDescription) -> tuple[str, ...]:
    """Return the machines with a server of etcd; none if the store is in files."""
    if description.store != ETCD:
        return ()
    return tuple(
        node.name
        for node in description.nodes
        if (node.candidate and not (node.offline or node.drained))
        or node.name == master_of(description)
    )


def _cluster(description: ClusterDescription, now: float) -> objects.Cluster:
    options = InitOptions(
        cluster_name="simulation",
        enabled_disk_templates=disk_constants.OFFERED_DISK_TEMPLATES,
        default_iallocator_params=description.allocator_params,
        ipolicy=description.ipolicy,
    )
    host = initial_config.MasterHost(
        hostname=master_of(description),
        primary_ip=_address(0),
        secondary_ip=_address(0),
        cluster_name="simulation",
        master_ip="192.0.2.1",
        netmask=32,
        family=2,
        file_storage_dir="/srv/ganeti/file-storage",
        shared_file_storage_dir="/srv/ganeti/shared-file-storage",
        gluster_storage_dir="/srv/ganeti/gluster",
        default_iallocator=description.allocator,
        has_default_kernel=False,
    )
    made = initial_config.make(options, host, now).cluster
    interval = {
        "active": description.diagnose,
        "interval": int(description.diagnose_s * 1_000_000),
    }
    mirrors = sum(
        len(item.disks_mib) for item in description.instances if item.template == "drbd"
    )
    freeze = {"reason": description.freeze, "time": now} if description.freeze else {}
    return made.replace(
        uuid=identity("cluster", ""),
        master_node=identity("node", master_of(description)),
        data_collectors={
            **made.data_collectors,
            "diagnose": interval,
            # Agents report the load of whole machines.
            mond.DATA_COLLECTOR_XEN_CPU_LOAD: {**interval, "active": False},
        },
        diagnose_data_collector_filename=_DIAGNOSE if description.diagnose else "",
        automation_limits=dict(description.limits),
        automation_freeze=freeze,
        node_death=description.node_death,
        highest_used_port=initial_config.FIRST_PORT_MARK + mirrors,
        maintenance=dict(description.maintenance),
        candidate_pool_size=description.candidate_pool_size
        or max(1, sum(n.candidate for n in description.nodes)),
        # Files of machines are not simulated.
        modify_ssh_setup=False,
        modify_etc_hosts=False,
        tags=tuple(sorted(description.tags)),
    )


def _group(group: GroupDescription | None, name: str) -> objects.NodeGroup:
    group = group or GroupDescription(name=name)
    return objects.NodeGroup(
        name=name,
        uuid=identity("group", name),
        ndparams={},
        alloc_policy=group.alloc_policy,
        ipolicy=dict(group.ipolicy),
        diskparams={},
        networks={},
        serial_no=1,
        tags=tuple(sorted(group.tags)),
    )


def _address(place: int) -> str:
    number = place + 2
    return f"10.{number >> 16 & 255}.{number // _OCTET & 255}.{number % _OCTET}"


def _node(node: NodeDescription, place: int) -> objects.Node:
    is_free = not (node.offline or node.drained)
    return objects.Node(
        name=node.name,
        uuid=identity("node", node.name),
        primary_ip=_address(place),
        secondary_ip=_address(place),
        master_candidate=node.candidate and is_free,
        offline=node.offline,
        drained=node.drained,
        group=identity("group", node.group),
        master_capable=node.candidate
        if node.master_capable is None
        else node.master_capable,
        vm_capable=node.vm_capable,
        ndparams={"oob_program": _HELPER} if node.helper else {},
        powered=node.powered,
        serial_no=1,
        tags=tuple(sorted(node.tags)),
    )


def _instances(
    description: ClusterDescription,
) -> Iterator[tuple[str, objects.Instance | objects.Disk]]:
    minors: collections.Counter[str] = collections.Counter()
    ports = itertools.count(initial_config.FIRST_PORT_MARK + 1)
    for item in description.instances:
        disks = [
            _disk(item, index, minors, ports)
            for index in range(len(item.disks_mib))
            if item.template != "diskless"
        ]
        for disk in disks:
            yield "disks", disk
        yield (
            "instances",
            objects.Instance(
                name=item.name,
                uuid=identity("instance", item.name),
                primary_node=identity("node", item.primary),
                os="simulated",
                hypervisor="kvm",
                admin_state=item.state,
                admin_state_source="admin",
                disks_active=item.state == "up",
                serial_no=1,
                beparams={
                    "maxmem": item.memory_mib,
                    "minmem": item.min_memory_mib or item.memory_mib,
                    "vcpus": item.vcpus,
                    "always_failover": item.always_failover,
                    "auto_balance": item.auto_balance,
                },
                disks=tuple(disk.uuid for disk in disks),
                tags=tuple(sorted(item.tags)),
            ),
        )


def _disk(
    item: InstanceDescription,
    index: int,
    minors: collections.Counter[str],
    ports: Iterator[int],
) -> objects.Disk:
    uuid_ = identity("disk", f"{item.name}/{index}")
    size, name = item.disks_mib[index], f"{item.name}.disk{index}"
    nodes = tuple(
        identity("node", node) for node in (item.primary, item.secondary) if node
    )
    common: dict[str, Any] = {"iv_name": f"disk/{index}", "serial_no": 1}
    if item.template != "drbd":
        address = _ADDRESSES[item.template](name)
        is_shared = item.template in disk_constants.DTS_EXT_MIRROR
        return objects.Disk(
            uuid=uuid_,
            dev_type=item.template,
            logical_id=address,
            size=size,
            nodes=() if is_shared else nodes,
            **common,
        )
    pair = []
    for node in nodes:
        pair.append(minors[node])
        minors[node] += 1
    children = tuple(
        objects.Disk(
            uuid=f"{uuid_}-{kind}",
            dev_type="plain",
            logical_id=(disk_constants.DEFAULT_VG, f"{name}_{kind}"),
            size=mib,
            nodes=nodes,
            serial_no=1,
        )
        for kind, mib in (("data", size), ("meta", META_MIB))
    )
    return objects.Disk(
        uuid=uuid_,
        dev_type="drbd",
        logical_id=(*nodes, next(ports), *pair, f"secret of {uuid_}"),
        size=size,
        nodes=nodes,
        children=children,
        **common,
    )


#: Template -> address of a disk with a name.
_ADDRESSES: Final[Mapping[str, Any]] = {
    "plain": lambda name: (disk_constants.DEFAULT_VG, name),
    "file": lambda name: ("loop", f"/srv/ganeti/file-storage/{name}"),
    "sharedfile": lambda name: ("loop", f"/srv/ganeti/shared-file-storage/{name}"),
    "gluster": lambda name: ("gluster", f"ganeti/{name}"),
    "rbd": lambda name: ("rbd", name),
    "ext": lambda name: ("simulated", name),
    "blockdev": lambda name: ("manual", f"/dev/disk/by-id/{name}"),
}
