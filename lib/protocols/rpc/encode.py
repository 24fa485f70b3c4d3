"""Objects in the form for nodes: filled as by `ganeti.model.objects.filled`, as JSON.

Pure functions of a snapshot. Overrides, such as the parameters of one start, apply to
one call and replace filled parameters.
"""

from collections.abc import Mapping
from typing import Any

from ganeti.base.constants import disks as disk_constants
from ganeti.model import objects
from ganeti.model.objects import cloud_init, params
from ganeti.protocols.rpc.wire import PerNode

Wire = dict[str, Any]


def instance(
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    *,
    hvparams: Mapping[str, Any] | None = None,
    beparams: Mapping[str, Any] | None = None,
    osparams: Mapping[str, Any] | None = None,
) -> Wire:
    """Return an instance with parameters, disks and networks filled in.

    Disks that are not in the snapshot yet are omitted from ``disks_info``. Private OS
    parameters are left out: see `private_instance`.
    """
    records = (snapshot.disks.get(uuid) for uuid in instance.disks)
    disks = [disk for disk in records if disk is not None]
    # Copies of UEFI variables and TPMs may have secrets: see `startable_instance`.
    bare = instance.replace(
        reservation=None, request=None, firmware_state="", tpm_state=""
    )
    wire = objects.to_dict(bare)
    wire |= {
        "hvparams": params.fill_hvparams(snapshot, instance) | dict(hvparams or {}),
        "beparams": params.fill_beparams(snapshot, instance) | dict(beparams or {}),
        "osparams": params.fill_osparams(snapshot, instance) | dict(osparams or {}),
        "osparams_private": {},
        "nics": [nic(snapshot, item) for item in instance.nics],
        "secondary_nodes": [
            uuid
            for uuid in dict.fromkeys(
                node for item in disks if item.dev_type == "drbd" for node in item.nodes
            )
            if uuid != instance.primary_node
        ],
        "disks_info": [disk(snapshot, item, instance) for item in disks],
    }
    return wire


def private_instance(
    snapshot: objects.Snapshot,
    item: objects.Instance,
    *,
    osparams: Mapping[str, Any] | None = None,
    osparams_private: Mapping[str, Any] | None = None,
    osparams_secret: Mapping[str, Any] | None = None,
) -> Wire:
    """Return an instance with its private and secret OS parameters.

    Only calls that run OS scripts or store an export take this form; see
    `Procedure.private` in the table.
    """
    wire = instance(snapshot, item, osparams=osparams)
    known = params.fill_osparams_private(snapshot, item)
    wire["osparams_private"] = known | dict(osparams_private or {})
    if osparams_secret:
        wire["osparams_secret"] = dict(osparams_secret)
    return wire


def startable_instance(
    snapshot: objects.Snapshot,
    item: objects.Instance,
    **overrides: Mapping[str, Any] | None,
) -> Wire:
    """Return an instance with its cloud-init files, UEFI variables and TPM.

    Only calls that start a guest, or prepare for one that arrives, take this form: all
    may have secrets. ``overrides`` are those of `instance`.
    """
    wire = instance(snapshot, item, **overrides)
    private = params.fill_osparams_private(snapshot, item)
    if files := cloud_init.files(item.name, item.uuid, wire["osparams"] | private):
        wire["cloud_init"] = files
    if item.firmware_state and wire["hvparams"].get("firmware") == "uefi":
        wire["firmware_state"] = item.firmware_state
    if item.tpm_state and wire["hvparams"].get("tpm"):
        wire["tpm_state"] = item.tpm_state
    return wire


def nic(snapshot: objects.Snapshot, item: objects.Nic) -> Wire:
    """Return a NIC with filled parameters and its network."""
    wire = objects.to_dict(item) | {"nicparams": params.fill_nicparams(snapshot, item)}
    network = snapshot.networks.get(item.network or "")
    if network is not None:
        keys = (
            "name",
            "uuid",
            "network",
            "gateway",
            "network6",
            "gateway6",
            "mac_prefix",
            "tags",
        )
        wire["netinfo"] = {key: getattr(network, key) for key in keys}
    return wire


def disk(
    snapshot: objects.Snapshot,
    item: objects.Disk,
    instance: objects.Instance | None = None,
    *,
    is_peer_away: bool = False,
) -> Wire:
    """Return a disk with the parameters of its owner's group filled in.

    Args:
        snapshot: the source of the parameters.
        item: a disk, which need not be in the snapshot.
        instance: its owner; without an owner, the cluster's parameters are used.
        is_peer_away: of a mirror, see `ganeti.base.constants.disks.PEER_IS_AWAY`.
    """
    wire = objects.to_dict(item)
    wire["params"] = _disk_params(snapshot, item, instance)
    wire["children"] = [disk(snapshot, child, instance) for child in item.children]
    if item.dev_type == "drbd":
        _complete_drbd(snapshot, item, wire)
        if is_peer_away:
            for values in wire["dynamic_params"].values():
                values[disk_constants.PEER_IS_AWAY] = True
    return wire


def _complete_drbd(snapshot: objects.Snapshot, item: objects.Disk, wire: Wire) -> None:
    """Add the data of both nodes; give its volumes the stripes of the mirror.

    What is left of a disk on one node may be older than the removal of the other node;
    without its address, nothing connects.
    """
    for child, prefix in zip(wire["children"], ("data-", "meta-"), strict=False):
        for name in ("stripe_size", "stripes"):
            child["params"][name] = wire["params"][prefix + name]
    first, second, port, first_minor, second_minor, _secret = item.logical_id
    minors = {first: first_minor, second: second_minor}
    addresses = {
        node: snapshot.nodes[node].secondary_ip
        for node in minors
        if node in snapshot.nodes
    }
    wire["dynamic_params"] = PerNode(
        {
            local: {
                "local-ip": addresses.get(local),
                "remote-ip": addresses.get(remote),
                "local-minor": minors[local],
                "remote-minor": minors[remote],
                "port": port,
                # Not in Ganeti: DRBD 9 numbers the nodes of a mirror.
                "node-id": number,
            }
            for number, (local, remote) in enumerate(((first, second), (second, first)))
        }
    )


def _disk_params(
    snapshot: objects.Snapshot,
    item: objects.Disk,
    instance: objects.Instance | None,
) -> Wire:
    owned = dict(item.params or {})
    node = snapshot.nodes.get(instance.primary_node) if instance is not None else None
    group = None if node is None else node.group
    return params.fill_diskparams(snapshot, group, item.dev_type) | owned
