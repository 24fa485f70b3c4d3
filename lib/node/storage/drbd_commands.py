"""Commands of DRBD 8.4 and of DRBD 9 for a mirror of two nodes, and its state.

A command is the list of arguments of ``drbdsetup``, see drbdsetup(8) of either
generation. With DRBD 9, a resource numbers its nodes, and has connections to several
nodes, each with paths; the mirrors of this suite have two nodes, numbered by their
places in the logical id, and one connection. Both copies of a mirror need the same
generation, since the layouts of their metadata differ.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ganeti.base import errors
from ganeti.base.process import Runner
from ganeti.node.storage import drbd9_state, drbd_state, drbd_tools
from ganeti.node.storage.drbd_state import Mirror, Resource

Argv = tuple[str, ...]
Params = Mapping[str, Any]
#: The only device of a resource.
_VOLUME: Final = "0"


@dataclasses.dataclass(frozen=True)
class Place:
    """The names of a mirror on a node.

    Attributes:
        name: of its resource.
        minor: of its device.
        node_id: number of this node in the resource.
        peer_id: number of the other one.
    """

    name: str
    minor: int
    node_id: int = 0
    peer_id: int = 1


class Commands(abc.ABC):
    """The commands of one generation of DRBD for a mirror."""

    #: Word for the layout of the metadata, and what follows ``create-md``.
    METADATA: ClassVar[str]
    METADATA_OPTIONS: ClassVar[Argv] = ()
    #: Whether a connection that was refused or ended stays, with its paths.
    KEEPS_CONNECTIONS: ClassVar[bool] = False
    #: Whether metadata alone can say that the data is complete.
    SETS_GENERATION: ClassVar[bool] = False

    def __init__(self, place: Place) -> None:
        self._name, self._minor = place.name, str(place.minor)
        self._place = place

    # State
    @staticmethod
    @abc.abstractmethod
    def mirrors(process: Runner, proc: str) -> dict[int, Mirror]:
        """Return minor -> state of all devices; ``proc`` is the text of the kernel."""

    @staticmethod
    def has_minor(minor: int, proc: str) -> bool | None:
        """Return whether the kernel's text names a device, None if it names none."""
        del minor, proc
        return None

    @staticmethod
    @abc.abstractmethod
    def resources(text: str) -> dict[str, Resource]:
        """Return name -> settings in the output of ``drbdsetup show``."""

    @abc.abstractmethod
    def generations(self) -> Argv:
        """Print the generation identifiers of the data."""

    # Device
    @abc.abstractmethod
    def new_resource(self) -> Argv:
        """Make the resource."""

    def new_device(self) -> Argv:
        """Make its device."""
        return ("new-minor", self._name, self._minor, _VOLUME)

    def attach(self, data: str, meta: str, params: Params) -> Argv:
        """Give the device its volumes."""
        return ("attach", self._minor, data, meta, "0", *self._disk(params))

    def change_disk(self, known: Resource, params: Params) -> list[Argv]:
        """Change the parameters of a disk."""
        del known
        return [("disk-options", self._minor, *self._disk(params))]

    @abc.abstractmethod
    def _disk(self, params: Params) -> list[str]:
        """Return the options of a disk."""

    def detach(self) -> Argv:
        """Take the volumes away."""
        return ("detach", self._minor)

    def resize(self, *, is_alone: bool) -> Argv:
        """Grow the device to what the volumes allow."""
        alone = ("--assume-peer-has-space=yes",) if is_alone else ()
        return ("resize", self._minor, *alone)

    def down(self) -> Argv:
        """Free device and resource."""
        return ("down", self._name)

    # Role
    @abc.abstractmethod
    def primary(self, *, force: bool = False) -> Argv:
        """Become primary."""

    @abc.abstractmethod
    def secondary(self) -> Argv:
        """Become secondary."""

    # Connection
    @abc.abstractmethod
    def connect(
        self, ends: Sequence[str], options: Sequence[str], params: Params
    ) -> list[Argv]:
        """Connect; options are those of the network."""

    def connect_again(self) -> Argv:
        """Connect with the path that a kept connection has."""
        raise errors.ProgrammerError("no connection is kept")

    @abc.abstractmethod
    def change_connection(self, known: Resource, options: Sequence[str]) -> Argv:
        """Change the options of the network."""

    @abc.abstractmethod
    def disconnect(self, known: Resource, *, force: bool = False) -> list[Argv]:
        """End the connection, and forget it."""

    @abc.abstractmethod
    def sync(self, *, pause: bool) -> Argv:
        """Pause or resume a synchronisation."""


class Commands84(Commands):
    """DRBD 8.4: a connection is named by its ends, and the role belongs to a device."""

    METADATA = "v08"
    SETS_GENERATION = True

    @staticmethod
    def mirrors(process: Runner, proc: str) -> dict[int, Mirror]:
        """Return minor -> state of all devices."""
        del process
        return drbd_state.parse_devices(proc)

    @staticmethod
    def has_minor(minor: int, proc: str) -> bool | None:
        """Return whether there is such a device, with or without volumes."""
        return minor in drbd_state.parse_devices(proc)

    @staticmethod
    def resources(text: str) -> dict[str, Resource]:
        """Return name -> settings in the output of ``drbdsetup show``."""
        return drbd_state.parse_show(text)

    def generations(self) -> Argv:
        """Print the generation identifiers of the data."""
        return ("get-gi", self._minor)

    def new_resource(self) -> Argv:
        """Make the resource."""
        return ("new-resource", self._name)

    def _disk(self, params: Params) -> list[str]:
        return [
            *drbd_tools.disk_options(params),
            *drbd_tools.sync_options(params),
            *drbd_tools.custom_options(params, "disk-custom"),
        ]

    def primary(self, *, force: bool = False) -> Argv:
        """Become primary."""
        return ("primary", self._minor, *(["--force=yes"] if force else []))

    def secondary(self) -> Argv:
        """Become secondary."""
        return ("secondary", self._minor)

    def connect(
        self, ends: Sequence[str], options: Sequence[str], params: Params
    ) -> list[Argv]:
        """Connect; options are those of the network."""
        del params
        return [("connect", self._name, *ends, *options)]

    def change_connection(self, known: Resource, options: Sequence[str]) -> Argv:
        """Change the options of the network."""
        return ("net-options", known.local, known.remote, *options)

    def disconnect(self, known: Resource, *, force: bool = False) -> list[Argv]:
        """End the connection, which forgets it."""
        more = ("--force=yes",) if force else ()
        return [("disconnect", known.local, known.remote, *more)]

    def sync(self, *, pause: bool) -> Argv:
        """Pause or resume a synchronisation."""
        return ("pause-sync" if pause else "resume-sync", self._minor)


class Commands9(Commands):
    """DRBD 9: nodes have numbers; what concerns a copy to a node has options there."""

    METADATA = "v09"
    #: Number of other nodes.
    METADATA_OPTIONS = ("1",)
    KEEPS_CONNECTIONS = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._peer = (self._name, str(place.peer_id))

    @staticmethod
    def mirrors(process: Runner, proc: str) -> dict[int, Mirror]:
        """Return minor -> state of all devices; ``/proc/drbd`` has none of them."""
        del proc
        return drbd9_state.parse_status(
            drbd_tools.printed(process, ("status", "all", "--json"))
        )

    @staticmethod
    def resources(text: str) -> dict[str, Resource]:
        """Return name -> settings in the output of ``drbdsetup show``."""
        return drbd9_state.parse_show(text)

    def generations(self) -> Argv:
        """Print the generation identifiers of the data, as compared with the peer."""
        return ("get-gi", *self._peer, _VOLUME)

    def new_resource(self) -> Argv:
        """Make the resource; only a command makes a node primary."""
        node = str(self._place.node_id)
        return ("new-resource", self._name, node, "--auto-promote=no", "--quorum=off")

    def _disk(self, params: Params) -> list[str]:
        return [
            *drbd_tools.disk_options(params),
            *drbd_tools.custom_options(params, "disk-custom"),
        ]

    def change_disk(self, known: Resource, params: Params) -> list[Argv]:
        """Change the parameters of a disk; those of a copy belong to its connection."""
        changes = super().change_disk(known, params)
        return [*changes, self._copying(params)] if known.remote else changes

    def _copying(self, params: Params) -> Argv:
        options = drbd_tools.sync_options(params)
        return ("peer-device-options", *self._peer, _VOLUME, *options)

    def primary(self, *, force: bool = False) -> Argv:
        """Become primary."""
        return ("primary", self._name, *(["--force=yes"] if force else []))

    def secondary(self) -> Argv:
        """Become secondary."""
        return ("secondary", self._name)

    def connect(
        self, ends: Sequence[str], options: Sequence[str], params: Params
    ) -> list[Argv]:
        """Make a connection with one path, and connect."""
        name = f"--_name=node{self._place.peer_id}"
        return [
            ("new-peer", *self._peer, name, *options),
            ("new-path", *self._peer, *ends),
            self._copying(params),
            self.connect_again(),
        ]

    def connect_again(self) -> Argv:
        """Connect with the path that the connection has."""
        return ("connect", *self._peer)

    def change_connection(self, known: Resource, options: Sequence[str]) -> Argv:
        """Change the options of the network."""
        del known
        return ("net-options", *self._peer, *options)

    def disconnect(self, known: Resource, *, force: bool = False) -> list[Argv]:
        """End the connection, and remove it with its path."""
        peer = (known.name, str(known.peer_id))
        more = ("--force=yes",) if force else ()
        return [("disconnect", *peer, *more), ("del-peer", *peer)]

    def sync(self, *, pause: bool) -> Argv:
        """Pause or resume a synchronisation."""
        return ("pause-sync" if pause else "resume-sync", *self._peer, _VOLUME)


#: First number of a version -> commands.
BY_MAJOR: Final[Mapping[int, type[Commands]]] = {8: Commands84, 9: Commands9}


def of_kernel(proc: str) -> type[Commands]:
    """Return the commands for the module of this kernel.

    Args:
        proc: text of `drbd_tools.read_proc`.
    """
    numbers = drbd_state.parse_version(proc)
    return BY_MAJOR[numbers[0] if numbers else 8]


def mirrors(process: Runner) -> dict[int, Mirror]:
    """Return minor -> state of all devices of this node.

    Raises:
        StorageError: DRBD or its tools are missing, or of an unknown generation.
    """
    proc = drbd_tools.read_proc()
    return of_kernel(proc).mirrors(process, proc)


def resources(process: Runner) -> dict[str, Resource]:
    """Return name -> settings of all resources of this node.

    Raises:
        StorageError: see `mirrors`; or a tool failed.
    """
    text = drbd_tools.printed(process, ("show", "all"))
    return of_kernel(drbd_tools.read_proc()).resources(text)
