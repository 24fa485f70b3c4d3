"""Parameters in force: settings of object, group and cluster combined.

All functions are pure and return new dictionaries that the caller may keep. The
``*_for`` functions take the pieces, for objects that are not stored yet.
"""

from collections.abc import Mapping
from typing import Any

from ganeti.base.constants.parameters import params
from ganeti.base.constants.parameters.hvparams import HYPERVISOR
from ganeti.base.constants.protocols.oob import OOB_OPT_OUT
from ganeti.model.objects.records import Cluster, Instance, Nic, Node, NodeGroup
from ganeti.model.objects.snapshot import Snapshot

Params = dict[str, Any]
_NONE: Mapping[str, Any] = {}


def hvparams_for(
    cluster: Cluster, hypervisor: str, os: str, overrides: Mapping[str, Any]
) -> Params:
    """Return hypervisor parameters: built-in < cluster < OS on it < overrides.

    The OS is looked up with its variant; overrides of parameters that only the
    cluster may set are dropped.
    """
    known = HYPERVISOR.get(hypervisor, {})
    return {
        **{name: param.default for name, param in known.items()},
        **cluster.hvparams.get(hypervisor, _NONE),
        **cluster.os_hvp.get(os, _NONE).get(hypervisor, _NONE),
        **{
            name: value
            for name, value in overrides.items()
            if name not in known or not known[name].cluster_only
        },
    }


def fill_hvparams(snapshot: Snapshot, instance: Instance) -> Params:
    """Return the hypervisor parameters of an instance."""
    return hvparams_for(
        snapshot.cluster, instance.hypervisor, instance.os, instance.hvparams
    )


def shares_directories(snapshot: Snapshot, instance: Instance) -> bool:
    """Return whether an instance shares directories of its node with its guest.

    Such a guest cannot migrate while it runs.
    """
    cluster, kind = snapshot.cluster, instance.hypervisor
    layers = (
        instance.hvparams,
        cluster.os_hvp.get(instance.os, _NONE).get(kind, _NONE),
        cluster.hvparams.get(kind, _NONE),
    )
    name = "shared_directories"
    return bool(next((layer[name] for layer in layers if name in layer), ""))


def beparams_for(cluster: Cluster, overrides: Mapping[str, Any]) -> Params:
    """Return backend parameters: built-in < cluster < overrides."""
    return {
        **{
            name: param.default
            for name, param in params.BACKEND.items()
            if param.default is not None
        },
        **cluster.beparams.get("default", _NONE),
        **overrides,
    }


def fill_beparams(snapshot: Snapshot, instance: Instance) -> Params:
    """Return the backend parameters of an instance."""
    return beparams_for(snapshot.cluster, instance.beparams)


def nicparams_for(cluster: Cluster, overrides: Mapping[str, Any]) -> Params:
    """Return NIC parameters: built-in < cluster < overrides."""
    return {
        **{name: param.default for name, param in params.NIC.items()},
        **cluster.nicparams.get("default", _NONE),
        **overrides,
    }


def fill_nicparams(snapshot: Snapshot, nic: Nic) -> Params:
    """Return mode, link and vlan of a NIC.

    A NIC in a network got the values of the connection when it was added.
    """
    return nicparams_for(snapshot.cluster, nic.nicparams)


def group_ndparams(snapshot: Snapshot, group: NodeGroup) -> Params:
    """Return the node parameters that nodes inherit from a group."""
    return {
        **{name: param.default for name, param in params.NODE.items()},
        **snapshot.cluster.ndparams,
        **group.ndparams,
    }


def fill_ndparams(snapshot: Snapshot, node: Node) -> Params:
    """Return the node parameters of a node."""
    return {
        **group_ndparams(snapshot, snapshot.nodegroups[node.group]),
        **node.ndparams,
    }


def has_exclusive_storage(snapshot: Snapshot, uuid: str) -> bool:
    """Return whether disks on a node get whole physical volumes."""
    return bool(fill_ndparams(snapshot, snapshot.nodes[uuid])["exclusive_storage"])


def oob_program(snapshot: Snapshot, node: Node) -> str:
    """Return the path of the out-of-band helper of a node, empty if it has none.

    The value ``!`` opts a node, or a group, out of what it would inherit.
    """
    program = str(fill_ndparams(snapshot, node)["oob_program"])
    return "" if program == OOB_OPT_OUT else program


def is_silent(snapshot: Snapshot, node: Node) -> bool:
    """Return whether the cluster does not communicate with a node.

    It is marked offline, or recorded as switched off; the record counts only if the
    node has an out-of-band helper.
    """
    return node.offline or (not node.powered and bool(oob_program(snapshot, node)))


def fill_diskparams(
    snapshot: Snapshot, group_uuid: str | None, template: str
) -> Params:
    """Return the disk parameters of a template in a group, or in none."""
    group = None if group_uuid is None else snapshot.nodegroups[group_uuid]
    return {
        **{name: p.default for name, p in params.DISK.get(template, {}).items()},
        **snapshot.cluster.diskparams.get(template, _NONE),
        **(_NONE if group is None else group.diskparams.get(template, _NONE)),
    }


def osparams_for(
    table: Mapping[str, Mapping[str, Any]], os: str, overrides: Mapping[str, Any]
) -> Params:
    """Return OS parameters: bare OS < OS with variant < overrides.

    Args:
        table: the cluster's, by OS.
        os: name of the OS, with its variant if it has one.
        overrides: the instance's.
    """
    bare, plus, _variant = os.partition("+")
    return {
        **table.get(bare, _NONE),
        **(table.get(os, _NONE) if plus else _NONE),
        **overrides,
    }


def fill_osparams(snapshot: Snapshot, instance: Instance) -> Params:
    """Return the public OS parameters of an instance."""
    return osparams_for(snapshot.cluster.osparams, instance.os, instance.osparams)


def fill_osparams_private(snapshot: Snapshot, instance: Instance) -> Params:
    """Return the private OS parameters of an instance, in clear text."""
    return osparams_for(
        snapshot.cluster.osparams_private_cluster,
        instance.os,
        instance.osparams_private,
    )


def group_ipolicy(snapshot: Snapshot, group: NodeGroup) -> Params:
    """Return the instance policy of a group; its keys replace whole values."""
    return {**snapshot.cluster.ipolicy, **group.ipolicy}
