"""States and settings of DRBD 8.4 devices, read from its texts. Pure.

The texts are ``/proc/drbd`` and the output of ``drbdsetup show``, see drbdsetup(8) and
the users' guide of DRBD 8.4. Names of states are those of the kernel.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

from ganeti.node.storage.base import LocalStatus

#: Texts of more characters are not read: 10,000 devices have 3 MB.
MAX_TEXT: Final = 16 * 1024 * 1024
_VERSION: Final = re.compile(r"^version: (\d+)\.(\d+)\.(\d+)\S*", re.MULTILINE)
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


_ENDS: Final = re.compile(r"([;{}])")
_STATEMENT: Final = re.compile(r"([\w-]+)\s*(.*)")


def parse_show(text: str) -> dict[str, Resource]:
    """Return name -> settings in the output of ``drbdsetup show``."""
    resources: dict[str, Resource] = {}
    path: list[str] = []
    current = ""
    for name, value, end, is_closed in statements(text):
        if is_closed:
            path = path[:-1]
        elif end == "{":
            path.append(name)
            if name == "resource" and len(path) == 1:
                current = value
                resources[current] = Resource(current)
        elif current:
            known = resources[current]
            resources[current] = _with_setting(known, tuple(path[1:]), name, value)
    return resources


def statements(text: str) -> Iterator[tuple[str, str, str, bool]]:
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
        return with_volume(known, name, value)
    return with_net(known, name, value) if where == "net" else known


def with_volume(known: Resource, name: str, value: str) -> Resource:
    """Return a resource with a setting of its volume."""
    if name == "device":
        minor = int(value.rpartition(" ")[2])
        return dataclasses.replace(known, minors=(*known.minors, minor))
    if name == "disk" and not known.data:
        return dataclasses.replace(known, data=value.strip('"'))
    if name == "meta-disk" and not known.meta:
        return dataclasses.replace(known, meta=value.partition(" ")[0].strip('"'))
    return known


def with_net(known: Resource, name: str, value: str) -> Resource:
    """Return a resource with a setting of its connection."""
    if name == "allow-two-primaries":
        return dataclasses.replace(known, two_primaries=value in ("", "yes"))
    if name == "protocol":
        return dataclasses.replace(known, protocol=value)
    return known
