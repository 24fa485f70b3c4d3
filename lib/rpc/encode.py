"""Instances, disks and NICs in the form in which nodes get them.

Pure: from a snapshot to plain dictionaries that `objects.filled` reads. Values of
private OS parameters are in clear text; callers never log the result.
"""

from collections.abc import Mapping
from typing import Any

from ganeti.objects import Disk, Instance, Nic, Snapshot, params, to_dict
from ganeti.rpc.wire import PerNode

_NONE: Mapping[str, Any] = {}


def instance(
    snapshot: Snapshot,
    instance: Instance,
    *,
    hvparams: Mapping[str, Any] | None = None,
    beparams: Mapping[str, Any] | None = None,
    osparams: Mapping[str, Any] | None = None,
    osparams_private: Mapping[str, Any] | None = None,
    osparams_secret: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an instance with everything filled in, its disks inside.

    Args:
        snapshot: where its disks, networks and defaults are.
        instance: the record; it may differ from the stored one.
        hvparams: laid over the filled ones for this call, as the next three.
        beparams: see ``hvparams``.
        osparams: see ``hvparams``.
        osparams_private: see ``hvparams``.
        osparams_secret: stored nowhere, so the only source.
    """
    return {
        **to_dict(instance),
        "hvparams": {
            **params.fill_hvparams(snapshot, instance),
            **(hvparams or _NONE),
        },
        "beparams": {
            **params.fill_beparams(snapshot, instance),
            **(beparams or _NONE),
        },
        "osparams": {
            **params.fill_osparams(snapshot, instance),
            **(osparams or _NONE),
        },
        "osparams_private": {
            **params.fill_osparams_private(snapshot, instance),
            **(osparams_private or _NONE),
        },
        "osparams_secret": dict(osparams_secret or _NONE),
        "nics": [nic(snapshot, item) for item in instance.nics],
        "secondary_nodes": list(snapshot.secondary_nodes(instance)),
        "disks_info": [
            disk(snapshot, snapshot.disks[uuid], instance) for uuid in instance.disks
        ],
    }


def nic(snapshot: Snapshot, nic: Nic) -> dict[str, Any]:
    """Return a NIC with filled parameters and its network."""
    data = {**to_dict(nic), "nicparams": params.fill_nicparams(snapshot, nic)}
    network = snapshot.networks.get(nic.network) if nic.network else None
    if network is not None:
        stored = to_dict(network)
        data["netinfo"] = {
            key: stored[key]
            for key in (
                *("name", "uuid", "network", "gateway", "network6", "gateway6"),
                *("mac_prefix", "tags"),
            )
            if key in stored
        }
    return data


def disk(snapshot: Snapshot, disk: Disk, instance: Instance) -> dict[str, Any]:
    """Return a disk with filled parameters, and what each of its nodes must know.

    Args:
        snapshot: where nodes and defaults are.
        disk: the record; need not be stored.
        instance: its owner; the group of its primary node gives the parameters.
    """
    group = snapshot.nodes[instance.primary_node].group
    filled = params.fill_diskparams(snapshot, group, disk.dev_type)
    data = _with_params(disk, {**filled, **(disk.params or _NONE)})
    if disk.dev_type == "drbd":
        data["children"] = [
            _with_params(child, {"stripes": filled[name]})
            for child, name in zip(
                disk.children, ("data-stripes", "meta-stripes"), strict=False
            )
        ]
        data["dynamic_params"] = _drbd_ends(snapshot, disk)
    return data


def _with_params(disk: Disk, values: Mapping[str, Any]) -> dict[str, Any]:
    return {**to_dict(disk), "params": dict(values)}


def _drbd_ends(snapshot: Snapshot, disk: Disk) -> PerNode:
    """Return minors and addresses of a DRBD disk as each of its two nodes sees them."""
    first, second, port, first_minor, second_minor, _secret = disk.logical_id
    ends = {first: first_minor, second: second_minor}
    return PerNode(
        {
            local: {
                "local-ip": snapshot.nodes[local].secondary_ip,
                "remote-ip": snapshot.nodes[remote].secondary_ip,
                "local-minor": ends[local],
                "remote-minor": ends[remote],
                "port": port,
            }
            for local, remote in ((first, second), (second, first))
        }
    )
