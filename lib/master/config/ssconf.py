"""The values of the ssconf files, computed from a snapshot; pure.

Each part is computed from a few tables. `SsconfTracker` computes only the parts
whose tables changed, so a change of one instance does not build a list of all.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ganeti.base.constants import versions
from ganeti.base.constants.parameters import hvparams
from ganeti.base.constants.parameters.hvparams import HYPERVISOR
from ganeti.base.text import nicesort
from ganeti.model.objects import Node, Snapshot, params

Values = dict[str, str]
#: Value of ``master_node`` if the configuration does not contain the node.
NO_MASTER: Final = "NO MASTER"


def ssconf_values(snapshot: Snapshot) -> Values:
    """Return key -> text of all ssconf files, without final newline."""
    values: Values = {}
    for _sources, compute in _PARTS:
        values |= compute(snapshot)
    return values


class SsconfTracker:
    """Tracker of the ssconf values that a new snapshot changes. Not thread-safe."""

    def __init__(self) -> None:
        """Start without values: the first `update` returns all."""
        self._sources: dict[int, tuple[Any, ...]] = {}
        self.values: Values = {}

    def update(self, snapshot: Snapshot) -> Values:
        """Return the values that changed since the snapshot of the last call."""
        changed: Values = {}
        for index, (sources, compute) in enumerate(_PARTS):
            current = sources(snapshot)
            known = self._sources.get(index)
            if known is not None and all(
                old is new for old, new in zip(known, current, strict=True)
            ):
                continue
            self._sources[index] = current
            changed |= {
                key: text
                for key, text in compute(snapshot).items()
                if self.values.get(key) != text
            }
        self.values = {**self.values, **changed}
        return changed

    def all(self, snapshot: Snapshot) -> Values:
        """Return the values of all files; computes only what changed."""
        self.update(snapshot)
        return self.values


def _lines(items: Iterable[str]) -> str:
    return "\n".join(items)


def _cluster_part(snapshot: Snapshot) -> Values:
    cluster = snapshot.cluster
    return {
        "cluster_name": cluster.cluster_name,
        "cluster_tags": _lines(sorted(cluster.tags)),
        "enabled_user_shutdown": str(cluster.enabled_user_shutdown),
        "file_storage_dir": cluster.file_storage_dir,
        "gluster_storage_dir": cluster.gluster_storage_dir,
        "hypervisor_list": _lines(cluster.enabled_hypervisors),
        "maintain_node_health": str(cluster.maintain_node_health),
        "master_candidates_certs": _lines(
            f"{uuid}={digest}"
            for uuid, digest in sorted(cluster.candidate_certs.items())
        ),
        "master_ip": cluster.master_ip,
        "master_netdev": cluster.master_netdev,
        "master_netmask": str(cluster.master_netmask),
        "primary_ip_family": str(cluster.primary_ip_family),
        "release_version": versions.RELEASE_VERSION,
        "shared_file_storage_dir": cluster.shared_file_storage_dir,
        "uid_pool": _lines(
            str(low) if low == high else f"{low}-{high}"
            for low, high in cluster.uid_pool
        ),
    } | {
        f"hvparams_{name}": _hvparams(cluster.hvparams, name)
        for name in hvparams.HYPER_TYPES
    }


def _hvparams(table: Mapping[str, Mapping[str, Any]], hypervisor: str) -> str:
    filled = {
        **{name: param.default for name, param in HYPERVISOR[hypervisor].items()},
        **table.get(hypervisor, {}),
    }
    return _lines(f"{name}={value}" for name, value in sorted(filled.items()))


def _node_part(snapshot: Snapshot) -> Values:
    nodes = nicesort.nice_sorted(snapshot.nodes.values(), lambda node: node.name)
    candidates = [
        node for _uuid, node in sorted(snapshot.nodes.items()) if node.master_candidate
    ]
    master = snapshot.nodes.get(snapshot.cluster.master_node)
    return {
        "master_candidates": _lines(node.name for node in candidates),
        "master_candidates_ips": _lines(node.primary_ip for node in candidates),
        "master_node": master.name if master else NO_MASTER,
        "node_list": _lines(node.name for node in nodes),
        "node_primary_ips": _lines(f"{node.name} {node.primary_ip}" for node in nodes),
        "node_secondary_ips": _lines(
            f"{node.name} {node.secondary_ip}" for node in nodes
        ),
        "node_vm_capable": _lines(f"{node.name}={node.vm_capable}" for node in nodes),
        "offline_nodes": _lines(node.name for node in nodes if node.offline),
        "online_nodes": _lines(node.name for node in nodes if not node.offline),
        "ssh_ports": _lines(f"{node.name}={_port(snapshot, node)}" for node in nodes),
    }


def _port(snapshot: Snapshot, node: Node) -> int:
    return int(params.fill_ndparams(snapshot, node)["ssh_port"])


def _group_part(snapshot: Snapshot) -> Values:
    groups = nicesort.nice_sorted(snapshot.nodegroups.values(), lambda item: item.name)
    return {"nodegroups": _lines(f"{group.uuid} {group.name}" for group in groups)}


def _network_part(snapshot: Snapshot) -> Values:
    networks = nicesort.nice_sorted(snapshot.networks.values(), lambda item: item.name)
    return {"networks": _lines(f"{item.uuid} {item.name}" for item in networks)}


def _instance_part(snapshot: Snapshot) -> Values:
    return {"instance_list": _lines(nicesort.nice_names(snapshot.names("instances")))}


#: The tables that a part is computed from, and its function.
_PARTS: Final[
    tuple[
        tuple[Callable[[Snapshot], tuple[Any, ...]], Callable[[Snapshot], Values]], ...
    ]
] = (
    (lambda now: (now.cluster,), _cluster_part),
    (lambda now: (now.cluster, now.nodes, now.nodegroups), _node_part),
    (lambda now: (now.nodegroups,), _group_part),
    (lambda now: (now.networks,), _network_part),
    # Only names: they change when instances are added, removed or renamed.
    (lambda now: (now.names("instances"),), _instance_part),
)
