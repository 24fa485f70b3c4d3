"""Consistency checks of a configuration: pure, one function per topic."""

import collections
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.base.constants.parameters import hvparams, params
from ganeti.base.constants.parameters.forms import Param
from ganeti.base.constants.protocols import ssh
from ganeti.master.config import address_pool, topology
from ganeti.master.config.address_pool import AddressPool
from ganeti.master.config.config import drbd_minors
from ganeti.master.config.rules import drbd_ports
from ganeti.model.objects import CLUSTER_KEY, TABLES, Disk, Instance, Snapshot

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "int": (int,),
    "size": (int,),
    "float": (int, float),
    "string": (str,),
    "maybe-string": (str, type(None)),
}


def verify(snapshot: Snapshot) -> list[str]:
    """Return a line for each problem, none if the configuration is consistent."""
    if CLUSTER_KEY not in snapshot.table("cluster"):
        return ["there is no cluster record"]
    return [text for check in _CHECKS for text in check(snapshot)]


def _keys(snapshot: Snapshot) -> Iterator[str]:
    for table in TABLES:
        for key, record in snapshot.table(table).items():
            if table != "cluster" and record.uuid != key:
                yield f"{table}: key {key} holds the uuid {record.uuid}"


def _cluster(snapshot: Snapshot) -> Iterator[str]:
    cluster = snapshot.cluster
    for field, known in (
        ("enabled_hypervisors", hvparams.HYPER_TYPES),
        ("enabled_disk_templates", disks.DISK_TEMPLATES),
    ):
        values = getattr(cluster, field)
        if not values:
            yield f"cluster: {field} is empty"
        for value in values:
            if value not in known:
                yield f"cluster: {field}: unknown value {value}"
    for name in cluster.enabled_hypervisors:
        if name not in cluster.hvparams:
            yield f"cluster: no parameters for the enabled hypervisor {name}"
    yield from _types("cluster beparams", cluster.beparams.get("default"), _BACKEND)
    yield from _types("cluster nicparams", cluster.nicparams.get("default"), params.NIC)
    yield from _types("cluster ndparams", cluster.ndparams, params.NODE)
    for key in cluster.candidate_certs:
        # During a renewal, the master has two certificates.
        uuid = key.removesuffix(ssh.CRYPTO_NEXT)
        if uuid not in snapshot.nodes:
            yield f"cluster: has a candidate certificate of the unknown node {uuid}"


_BACKEND: Final = {
    name: param for name, param in params.BACKEND.items() if param.default is not None
}


def _types(
    what: str, values: Mapping[str, Any] | None, known: Mapping[str, Param]
) -> Iterator[str]:
    """Check complete parameters: all present, all known, all of the right type."""
    if not isinstance(values, Mapping):
        yield f"{what}: missing" if values is None else f"{what}: found {values!r:.80}"
        return
    for name in sorted(known.keys() - values.keys()):
        yield f"{what}: {name} is missing"
    yield from _partial_types(what, values, known)


def _partial_types(
    what: str, values: Mapping[str, Any], known: Mapping[str, Param]
) -> Iterator[str]:
    for name, value in sorted(values.items()):
        if name not in known:
            yield f"{what}: unknown parameter {name}"
            continue
        expected_type = known[name].type
        is_bool = isinstance(value, bool)
        if not isinstance(value, _TYPES[expected_type]) or is_bool != (
            expected_type == "bool"
        ):
            yield f"{what}: {name} should be of type {expected_type}, found {value!r}"


def _master(snapshot: Snapshot) -> Iterator[str]:
    uuid = snapshot.cluster.master_node
    master = snapshot.nodes.get(uuid)
    if master is None:
        yield f"cluster: the master node {uuid} is unknown"
        return
    if not master.master_candidate:
        yield f"node {master.name}: is the master, but not a master candidate"
    for flag in ("offline", "drained"):
        if getattr(master, flag):
            yield f"node {master.name}: is the master, but {flag}"
    pool = topology.pool_state(snapshot)
    if pool.current < pool.wanted:
        yield (
            f"cluster: there are {pool.current} master candidates, wanted {pool.wanted}"
        )


def _nodes(snapshot: Snapshot) -> Iterator[str]:
    for node in snapshot.nodes.values():
        if node.group not in snapshot.nodegroups:
            yield f"node {node.name}: its group {node.group} is unknown"
        flags = [
            flag
            for flag in ("master_candidate", "drained", "offline")
            if getattr(node, flag)
        ]
        if len(flags) > 1:
            yield f"node {node.name}: is {' and '.join(flags)} at the same time"
        if node.master_candidate and not node.master_capable:
            yield f"node {node.name}: is a master candidate, but not master_capable"
        yield from _partial_types(
            f"node {node.name}: ndparams", node.ndparams, params.NODE
        )
        for name in params.NODE_GLOBAL:
            if name in node.ndparams:
                yield f"node {node.name}: {name} cannot be set on a node"


def _groups(snapshot: Snapshot) -> Iterator[str]:
    for group in snapshot.nodegroups.values():
        if _UUID.fullmatch(group.name):
            yield f"group {group.name}: its name looks like a uuid"
        yield from _partial_types(
            f"group {group.name}: ndparams", group.ndparams, params.NODE
        )
        for network in group.networks:
            if network not in snapshot.networks:
                yield f"group {group.name}: its network {network} is unknown"


def _names(snapshot: Snapshot) -> Iterator[str]:
    for table in ("nodes", "nodegroups", "instances", "networks"):
        names = (record.name for record in snapshot.table(table).values())
        for name in _repeated(names):
            yield f"{table}: the name {name} is used more than once"


def _repeated(items: Iterable[Any]) -> list[Any]:
    return sorted(
        item for item, count in collections.Counter(items).items() if count > 1
    )


def _instances(snapshot: Snapshot) -> Iterator[str]:
    macs: list[str] = []
    for instance in snapshot.instances.values():
        what = f"instance {instance.name}"
        if instance.primary_node not in snapshot.nodes:
            yield f"{what}: its primary node {instance.primary_node} is unknown"
        if instance.hypervisor not in hvparams.HYPER_TYPES:
            yield f"{what}: unknown hypervisor {instance.hypervisor}"
        yield from _partial_types(f"{what}: beparams", instance.beparams, _BACKEND)
        for index, uuid in enumerate(instance.disks):
            disk = snapshot.disks.get(uuid)
            if disk is None:
                yield f"{what}: its disk {uuid} is unknown"
            elif disk.iv_name != f"disk/{index}":
                yield (
                    f"{what}: disk {index} should be called disk/{index}, found"
                    f" {disk.iv_name}"
                )
        for index, nic in enumerate(instance.nics):
            macs.append(nic.mac)
            yield from _partial_types(f"{what}: NIC {index}", nic.nicparams, params.NIC)
            if nic.network is not None and nic.network not in snapshot.networks:
                yield f"{what}: NIC {index}: its network {nic.network} is unknown"
            elif nic.network is not None and instance.primary_node in snapshot.nodes:
                yield from _connection(snapshot, instance, nic.network, index)
    for mac in _repeated(macs):
        yield f"cluster: MAC address {mac} is used more than once"


def _connection(
    snapshot: Snapshot, instance: Instance, network: str, index: int
) -> Iterator[str]:
    """Check that the network of a NIC is connected to the group of the instance."""
    uuid = snapshot.nodes[instance.primary_node].group
    group = snapshot.nodegroups.get(uuid)
    if group is not None and network not in group.networks:
        yield (
            f"instance {instance.name}: NIC {index}: its network"
            f" {snapshot.networks[network].name} is not connected to group {group.name}"
        )


def _disks(snapshot: Snapshot) -> Iterator[str]:
    owners = collections.Counter(
        uuid for instance in snapshot.instances.values() for uuid in instance.disks
    )
    for uuid, count in sorted(owners.items()):
        if count > 1:
            yield f"disk {uuid}: is attached {count} times"
    minors: list[tuple[str, int]] = []
    for disk in snapshot.disks.values():
        if disk.dev_type not in disks.DISK_TEMPLATES:
            yield f"disk {disk.uuid}: unknown type {disk.dev_type}"
        if _is_complete_drbd(disk):
            minors += drbd_minors(disk)
            for node in disk.logical_id[:2]:
                if node not in snapshot.nodes:
                    yield f"disk {disk.uuid}: its node {node} is unknown"
        elif disk.dev_type == "drbd" and not disk.forthcoming:
            yield f"disk {disk.uuid}: its logical_id is {list(disk.logical_id[:5])}"
        for node in disk.nodes:
            if node not in snapshot.nodes:
                yield f"disk {disk.uuid}: its node {node} is unknown"
    for node, minor in _repeated(minors):
        name = snapshot.nodes[node].name if node in snapshot.nodes else node
        yield f"node {name}: DRBD minor {minor} is used more than once"


def _is_complete_drbd(disk: Disk) -> bool:
    """Whether a disk is of type drbd, with nodes, port, minors and secret."""
    kinds = [type(item) for item in disk.logical_id]
    return disk.dev_type == "drbd" and kinds == [str, str, int, int, int, str]


def _ports(snapshot: Snapshot) -> Iterator[str]:
    cluster = snapshot.cluster
    used: dict[int, list[str]] = collections.defaultdict(list)
    for disk in filter(_is_complete_drbd, snapshot.disks.values()):
        for port in drbd_ports(disk):
            used[port].append(f"disk {disk.uuid}")
    for instance in snapshot.instances.values():
        if instance.network_port is not None:
            used[instance.network_port].append(f"instance {instance.name}")
    for port in cluster.tcpudp_port_pool:
        used[port].append("the pool of free ports")
    for port, users in sorted(used.items()):
        if len(users) > 1:
            yield f"cluster: port {port} is used by {', '.join(sorted(users))}"
    if used and max(used) > cluster.highest_used_port:
        yield (
            f"cluster: the highest used port should be at least {max(used)}, found"
            f" {cluster.highest_used_port}"
        )


def _addresses(snapshot: Snapshot) -> Iterator[str]:
    for (_where, address), users in sorted(address_pool.used(snapshot).items()):
        if len(users) > 1:
            yield f"cluster: address {address} is used by {', '.join(sorted(users))}"


def _networks(snapshot: Snapshot) -> Iterator[str]:
    taken: dict[str, set[str]] = collections.defaultdict(set)
    for instance in snapshot.instances.values():
        for nic in instance.nics:
            if nic.network and nic.ip:
                taken[nic.network].add(nic.ip)
    for uuid, network in snapshot.networks.items():
        try:
            pool = AddressPool(network)
        except errors.AddressPoolError as err:
            yield str(err)
            continue
        for address in sorted(taken[uuid] - set(pool.used())):
            if pool.contains(address):
                yield (
                    f"network {network.name}: {address} is used by an instance, but not"
                    " reserved"
                )
            else:
                yield f"network {network.name}: {address} is not in {network.network}"
        for address in sorted(set(pool.used()) - taken[uuid]):
            yield f"network {network.name}: {address} is reserved, but not in use"


_CHECKS: Final[tuple[Callable[[Snapshot], Iterator[str]], ...]] = (
    _keys,
    _cluster,
    _master,
    _nodes,
    _groups,
    _names,
    _instances,
    _disks,
    _ports,
    _addresses,
    _networks,
)
