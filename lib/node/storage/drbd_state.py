"""States and settings of DRBD devices, read from the texts of DRBD 8.4 and 9. Pure.

The texts are ``/proc/drbd``, and the output of ``drbdsetup show`` and ``drbdsetup
status --json``, see drbdsetup(8) and the users' guide of either generation. Names of
states are those of the kernel, in the terms of DRBD 8.4.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import msgspec

from ganeti.base import errors
from ganeti.node.storage.base import LocalStatus

#: Texts of more characters are not read: 10,000 devices have 3 MB.
MAX_TEXT: Final = 16 * 1024 * 1024
_VERSION: Final = re.compile(r"^version: (\d+)\.(\d+)\.(\d+)\S*", re.MULTILINE)
#: A device that is not configured has neither role nor disks in its line.
_DEVICE: Final = re.compile(
    r"^ *(?P<minor>\d+): cs:(?P<connection>\w+)"
    r"(?: ro:(?P<role>\w+)/\w+ ds:(?P<disk>\w+)/(?P<peer_disk>\w+))?.*"
)
_PROGRESS: Final = re.compile(r"sync'ed: *([\d.]+)%")
_FINISH: Final = re.compile(r"finish: (\d+):(\d\d):(\d\d)")
_OUT_OF_SYNC: Final = re.compile(r"\boos:(\d{1,18})\b", re.ASCII)
#: Connections of which one node copies to the other one.
_SYNCING: Final = frozenset(
    {
        *("StartingSyncS", "StartingSyncT", "WFBitMapS", "WFBitMapT", "WFSyncUUID"),
        *("SyncSource", "SyncTarget", "PausedSyncS", "PausedSyncT"),
    }
)
_TALKING: Final = _SYNCING | {"Connected", "VerifyS", "VerifyT", "Ahead", "Behind"}
#: Moments of a connection that begins or ends.
_PASSING: Final = frozenset(
    {
        *("Unconnected", "WFReportParams", "Timeout", "BrokenPipe", "NetworkFailure"),
        *("ProtocolError", "TearDown"),
    }
)
#: Connections that do not come back by themselves.
_ALONE: Final = frozenset({"StandAlone", "Disconnecting"})
_UNCONFIGURED: Final = "Unconfigured"
_UP_TO_DATE: Final = "UpToDate"
_NO_DISK: Final = frozenset({"Diskless", "Failed", "Detaching"})


@dataclasses.dataclass(frozen=True)
class Mirror:
    """The state of one device.

    Attributes:
        minor: its number.
        connection: to the peer, such as ``Connected``.
        role: of this node, ``Primary`` or ``Secondary``.
        disk: state of the data of this node, such as ``UpToDate``.
        peer_disk: the same of the peer, as far as this node knows.
        sync_percent: part of a running synchronisation that is done.
        left_s: its estimated time in seconds.
        out_of_sync_kib: size of the blocks that are marked to be copied.
    """

    minor: int
    connection: str
    role: str = "Unknown"
    disk: str = "DUnknown"
    peer_disk: str = "DUnknown"
    sync_percent: float | None = None
    left_s: float | None = None
    out_of_sync_kib: int = 0

    @property
    def is_in_use(self) -> bool:
        """Whether the device has a disk or a connection."""
        return self.connection != _UNCONFIGURED

    @property
    def is_syncing(self) -> bool:
        """Whether one node copies to the other one, or is about to."""
        return self.connection in _SYNCING

    @property
    def is_about_to_sync(self) -> bool:
        """Whether blocks are marked and the peer has not asked for them yet.

        After a growth, both nodes call their data complete until then.
        """
        return self.connection == "Connected" and self.out_of_sync_kib > 0

    @property
    def is_connected(self) -> bool:
        """Whether the nodes exchange data."""
        return self.connection in _TALKING

    @property
    def is_in_handshake(self) -> bool:
        """Whether the connection is about to be another one, within moments."""
        return self.connection in _PASSING

    @property
    def is_standalone(self) -> bool:
        """Whether the node does not try to reach its peer."""
        return self.connection in _ALONE

    @property
    def is_up_to_date(self) -> bool:
        """Whether the data of this node is complete."""
        return self.disk == _UP_TO_DATE

    @property
    def is_diskless(self) -> bool:
        """Whether this node has lost its data, or has none."""
        return self.disk in _NO_DISK

    @property
    def is_degraded(self) -> bool:
        """Whether not both nodes have all data."""
        return not (
            self.is_connected and self.is_up_to_date and self.peer_disk == _UP_TO_DATE
        )

    @property
    def local_status(self) -> LocalStatus:
        """The state of this node's data."""
        if self.is_up_to_date:
            return LocalStatus.OK
        if self.is_diskless:
            return LocalStatus.FAULTY
        return LocalStatus.SYNC if self.is_syncing else LocalStatus.UNKNOWN

    def text(self) -> str:
        """Return the state for messages."""
        return (
            f"connection {self.connection}, role {self.role}, data {self.disk} here and"
            f" {self.peer_disk} on the other node"
        )


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Return the version in ``/proc/drbd``, None if there is none."""
    version = _VERSION.search(text)
    if version is None:
        return None
    major, minor, patch = map(int, version.groups())
    return major, minor, patch


def parse_devices(text: str) -> dict[int, Mirror]:
    """Return minor -> state of the devices in ``/proc/drbd``."""
    mirrors: dict[int, Mirror] = {}
    last = None
    for line in text[:MAX_TEXT].splitlines():
        device = _DEVICE.fullmatch(line)
        if device is not None:
            values = {key: text for key, text in device.groupdict().items() if text}
            last = int(values.pop("minor"))
            mirrors[last] = Mirror(last, **values)  # type: ignore[arg-type]
        elif last is not None:
            mirrors[last] = _with_progress(mirrors[last], line)
    return mirrors


def _with_progress(mirror: Mirror, line: str) -> Mirror:
    done, finish = _PROGRESS.search(line), _FINISH.search(line)
    if marked := _OUT_OF_SYNC.search(line):
        mirror = dataclasses.replace(mirror, out_of_sync_kib=int(marked[1]))
    if done is not None:
        mirror = dataclasses.replace(mirror, sync_percent=float(done[1]))
    if finish is not None:
        hours, minutes, seconds = map(int, finish.groups())
        left = 3600.0 * hours + 60 * minutes + seconds
        mirror = dataclasses.replace(mirror, left_s=left)
    return mirror


#: Generation identifiers: of the present data, of the data since the peer was lost, and
#: of two earlier ones.
_GENERATIONS: Final = re.compile(
    r"([0-9A-F]{16}):([0-9A-F]{16}):([0-9A-F]{16}):([0-9A-F]{16})(?::[01])*\s*",
    re.ASCII,
)


def parse_generations(text: str) -> tuple[str, ...]:
    """Return the identifiers in the output of ``drbdsetup get-gi``; none if unknown."""
    line = _GENERATIONS.fullmatch(text)
    return line.groups() if line is not None else ()


@dataclasses.dataclass(frozen=True)
class Resource:
    """The settings of one resource; resources of this suite have one device.

    Attributes:
        name: of the resource.
        minors: numbers of its devices.
        data: path of the device below the first one, empty without a disk.
        meta: path of the device of its metadata.
        local: ``family:address:port`` of this node, empty without a connection.
        remote: the same of the peer.
        two_primaries: whether both nodes may be primary.
        protocol: of the replication.
        peer_id: number of the peer, None with DRBD 8.4 or without a connection.
    """

    name: str
    minors: tuple[int, ...] = ()
    data: str = ""
    meta: str = ""
    local: str = ""
    remote: str = ""
    two_primaries: bool = False
    protocol: str = "C"
    peer_id: int | None = None


#: Adds a setting: the resource, the sections around it, name and value.
_WithSetting = Callable[[Resource, tuple[str, ...], str, str], Resource]
_ENDS: Final = re.compile(r"([;{}])")
_STATEMENT: Final = re.compile(r"([\w-]+)\s*(.*)")


def parse_show(text: str) -> dict[str, Resource]:
    """Return name -> settings in the output of ``drbdsetup show``."""
    return _parse_show(text, _with_setting)


def _parse_show(text: str, with_setting: _WithSetting) -> dict[str, Resource]:
    resources: dict[str, Resource] = {}
    path: list[str] = []
    current = ""
    for name, value, end, is_closed in _statements(text):
        if is_closed:
            path = path[:-1]
        elif end == "{":
            path.append(name)
            if name == "resource" and len(path) == 1:
                current = value.strip('"')
                resources[current] = Resource(current)
        elif current:
            known = resources[current]
            resources[current] = with_setting(known, tuple(path[1:]), name, value)
    return resources


def _statements(text: str) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the statements of ``drbdsetup show``.

    Each is its name, its value, ``{`` or ``;`` for its end, and whether it is the end
    of a section instead.
    """
    for line in text[:MAX_TEXT].splitlines():
        parts = _ENDS.split(line.partition("#")[0])
        for statement, end in zip(parts[::2], parts[1::2], strict=False):
            part = _STATEMENT.search(statement.strip())
            if end == "}":
                yield "", "", "", True
            elif part is not None:
                yield part[1], part[2], end, False


def _with_setting(
    known: Resource, path: tuple[str, ...], name: str, value: str
) -> Resource:
    where = path[0] if path else ""
    if where in ("_this_host", "_remote_host") and name == "address":
        family, _space, address = value.partition(" ")
        end = f"{family}:{address.strip()}"
        if where == "_this_host":
            return dataclasses.replace(known, local=end)
        return dataclasses.replace(known, remote=end)
    if path == ("_this_host", "volume"):
        return _with_volume(known, name, value)
    return _with_net(known, name, value) if where == "net" else known


def _with_volume(known: Resource, name: str, value: str) -> Resource:
    """Return a resource with a setting of its volume."""
    if name == "device":
        minor = int(value.rpartition(" ")[2])
        return dataclasses.replace(known, minors=(*known.minors, minor))
    if name == "disk" and not known.data:
        return dataclasses.replace(known, data=value.strip('"'))
    if name == "meta-disk" and not known.meta:
        return dataclasses.replace(known, meta=value.partition(" ")[0].strip('"'))
    return known


def _with_net(known: Resource, name: str, value: str) -> Resource:
    """Return a resource with a setting of its connection."""
    if name == "allow-two-primaries":
        return dataclasses.replace(known, two_primaries=value in ("", "yes"))
    if name == "protocol":
        return dataclasses.replace(known, protocol=value)
    return known


# DRBD 9 has connections to several nodes, and separates the state of a connection from
# that of the replication; the mirrors of this suite have two nodes, so that one word of
# 8.4 has both.

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


def parse_status_9(text: str) -> dict[int, Mirror]:
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
        device.minor: _mirror_9(resource, device)
        for resource in rows
        for device in resource.devices
    }


def _mirror_9(resource: _Resource, device: _Device) -> Mirror:
    if not resource.connections:
        is_idle = device.disk_state == "Diskless"
        connection = "Unconfigured" if is_idle else "StandAlone"
        return Mirror(device.minor, connection, resource.role, device.disk_state)
    link = resource.connections[0]
    peers = [peer for peer in link.peer_devices if peer.volume == device.volume]
    peer = peers[0] if peers else _PeerDevice(device.volume)
    mirror = Mirror(
        device.minor,
        _connection_9(link, peer),
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


def _connection_9(link: _Connection, peer: _PeerDevice) -> str:
    if link.connection_state != _CONNECTED:
        return _WAITING.get(link.connection_state, link.connection_state)
    return _REPLICATION.get(peer.replication_state, peer.replication_state)


def parse_show_9(text: str) -> dict[str, Resource]:
    """Return name -> settings in the output of ``drbdsetup show``."""
    return _parse_show(text, _with_setting_9)


def _with_setting_9(
    known: Resource, path: tuple[str, ...], name: str, value: str
) -> Resource:
    if path == ("_this_host", "volume"):
        return _with_volume(known, name, value)
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
        return _with_net(known, name, value)
    return known
