"""States and settings of DRBD 9 devices, in the terms of DRBD 8.4. Pure.

The texts are the output of ``drbdsetup status --json`` and of ``drbdsetup show``, see
drbdsetup(8) of DRBD 9. DRBD 9 has connections to several nodes, and separates the state
of a connection from that of the replication; the mirrors of this suite have two nodes,
so that one word of 8.4 has both.
"""

import dataclasses
from typing import Annotated, Final

import msgspec

from ganeti.base import errors
from ganeti.node.storage import drbd_state
from ganeti.node.storage.drbd_state import Mirror, Resource

#: A word of the kernel.
_Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z]{1,24}\Z")]
_Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
_CONNECTED: Final = "Connected"
#: States of a connection that has no peer yet -> those of 8.4.
_WAITING: Final = {"Connecting": "WFConnection"}
#: States of a replication -> those of 8.4. Without replication, a connection has begun.
_REPLICATION: Final = {"Established": "Connected", "Off": "WFReportParams"}
#: Estimates of more seconds are no estimates: there is no progress.
_MAX_LEFT_S: Final = 900_000_000


class _PeerDevice(msgspec.Struct, frozen=True, rename="kebab"):
    volume: int = 0
    replication_state: _Word = "Off"
    peer_disk_state: _Word = "DUnknown"
    out_of_sync: Annotated[int, msgspec.Meta(ge=0)] = 0
    percent_in_sync: _Percent | None = None
    estimated_seconds_to_finish: Annotated[float, msgspec.Meta(ge=0)] | None = None


class _Connection(msgspec.Struct, frozen=True, rename="kebab"):
    peer_node_id: int
    connection_state: _Word
    peer_devices: Annotated[list[_PeerDevice], msgspec.Meta(max_length=64)] = (
        msgspec.field(default_factory=list, name="peer_devices")
    )


class _Device(msgspec.Struct, frozen=True, rename="kebab"):
    minor: Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
    volume: int = 0
    disk_state: _Word = "Diskless"


class _Resource(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    role: _Word = "Unknown"
    devices: list[_Device] = []
    connections: list[_Connection] = []


def parse_status(text: str) -> dict[int, Mirror]:
    """Return minor -> state of the devices in the output of ``status --json``.

    Raises:
        StorageError: the output cannot be read.
    """
    try:
        rows = msgspec.json.decode(text or "[]", type=list[_Resource])
    except msgspec.MsgspecError as err:
        raise errors.StorageError(
            f"drbdsetup status: its output cannot be read: {err}"
        ) from err
    return {
        device.minor: _mirror(resource, device)
        for resource in rows
        for device in resource.devices
    }


def _mirror(resource: _Resource, device: _Device) -> Mirror:
    if not resource.connections:
        is_idle = device.disk_state == "Diskless"
        connection = "Unconfigured" if is_idle else "StandAlone"
        return Mirror(device.minor, connection, resource.role, device.disk_state)
    link = resource.connections[0]
    peers = [peer for peer in link.peer_devices if peer.volume == device.volume]
    peer = peers[0] if peers else _PeerDevice(device.volume)
    mirror = Mirror(
        device.minor,
        _connection(link, peer),
        resource.role,
        device.disk_state,
        peer.peer_disk_state,
        out_of_sync_kib=peer.out_of_sync,
    )
    if not mirror.is_syncing:
        return mirror
    left = peer.estimated_seconds_to_finish
    is_known = left is not None and left < _MAX_LEFT_S
    return dataclasses.replace(
        mirror, sync_percent=peer.percent_in_sync, left_s=left if is_known else None
    )


def _connection(link: _Connection, peer: _PeerDevice) -> str:
    if link.connection_state != _CONNECTED:
        return _WAITING.get(link.connection_state, link.connection_state)
    return _REPLICATION.get(peer.replication_state, peer.replication_state)


def parse_show(text: str) -> dict[str, Resource]:
    """Return name -> settings in the output of ``drbdsetup show``."""
    resources: dict[str, Resource] = {}
    path: list[str] = []
    current = ""
    for name, value, end, is_closed in drbd_state.statements(text):
        if is_closed:
            path = path[:-1]
        elif end == "{":
            path.append(name)
            if name == "resource" and len(path) == 1:
                current = value.strip('"')
                resources[current] = Resource(current)
        elif current:
            known = resources[current]
            resources[current] = _with_setting(known, tuple(path[1:]), name, value)
    return resources


def _with_setting(
    known: Resource, path: tuple[str, ...], name: str, value: str
) -> Resource:
    if path == ("_this_host", "volume"):
        return drbd_state.with_volume(known, name, value)
    if path == ("connection",) and name == "_peer_node_id":
        return dataclasses.replace(known, peer_id=int(value))
    if path == ("connection", "path"):
        family, _space, address = value.partition(" ")
        end = f"{family}:{address.strip()}"
        if name == "_this_host":
            return dataclasses.replace(known, local=end)
        if name == "_remote_host":
            return dataclasses.replace(known, remote=end)
    if path == ("connection", "net"):
        return drbd_state.with_net(known, name, value)
    return known
