"""DRBD's tools on this node: the commands of DRBD 8.4 and of DRBD 9 for a mirror.

A command is the list of arguments of ``drbdsetup``, see drbdsetup(8) of either
generation. With DRBD 9, a resource numbers its nodes, and has connections to several
nodes, each with paths; the mirrors of this suite have two nodes, numbered by their
places in the logical id, and one connection. Both copies of a mirror need the same
generation, since the layouts of their metadata differ.

No configuration files are used. ``drbdsetup`` takes the shared secret of a connection
only as an argument, so other processes of the node can see it for the moment of that
call; it is in no log and no message.
"""

import abc
import dataclasses
import secrets
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.process import SAFE_PATH, Runner
from ganeti.node.storage import drbd_state
from ganeti.node.storage.drbd_state import Mirror, Resource

PROC: Final = "/proc/drbd"
_HELPER: Final = "/sys/module/drbd/parameters/usermode_helper"
_ENVIRONMENT: Final = {"PATH": SAFE_PATH, "LC_ALL": "C"}
_TIMEOUT_S: Final = 50.0
_MAX_OUTPUT: Final = drbd_state.MAX_TEXT
#: First numbers of the versions that are known; 9 stands for all of them.
_WANTED: Final = ((8, 4), (9,))
#: Number of a device that does not exist: the tool refuses active ones, also those
#: that are without disk while their metadata is made. For other numbers it refuses
#: nothing: metadata that a device uses would be overwritten.
_NO_MINOR: Final = "999999"


def read_proc() -> str:
    """Return the text of ``/proc/drbd``.

    Raises:
        StorageError: the module is not loaded, or is neither DRBD 8.4 nor 9.
    """
    try:
        text = files.text_of(PROC, files.MAX_READ)
    except OSError as err:
        raise errors.StorageError(
            f"DRBD's kernel module is not loaded ({PROC}: {err.strerror}); an"
            " administrator can load it with modprobe drbd usermode_helper=/bin/true"
        ) from err
    version = drbd_state.parse_version(text)
    if version is None or not any(version[: len(w)] == w for w in _WANTED):
        present = ".".join(map(str, version)) if version else "an unknown one"
        raise errors.StorageError(f"DRBD: wanted version 8.4 or 9, found {present}")
    return text


def version() -> str:
    """Return the version of the kernel module.

    Raises:
        StorageError: see `read_proc`.
    """
    numbers = drbd_state.parse_version(read_proc()) or ()
    return ".".join(map(str, numbers))


def usermode_helper() -> str:
    """Return the program that the kernel module calls.

    Raises:
        StorageError: the module is not loaded.
    """
    try:
        return files.text_of(_HELPER, files.MAX_PROC).partition("\n")[0].strip()
    except OSError as err:
        raise errors.StorageError(
            f"DRBD's kernel module is not loaded ({_HELPER}: {err.strerror})"
        ) from err


def printed(process: Runner, argv: Sequence[str]) -> str:
    """Return what a command of ``drbdsetup`` prints.

    Raises:
        StorageError: DRBD's tools are not installed or failed.
    """
    result = _run(process, ["drbdsetup", *argv])
    if result.failed:
        raise errors.StorageError(f"drbdsetup {argv[0]}: {_messages(result)}")
    return str(result.stdout)


def generations(process: Runner, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the generation identifiers that a command prints, none if unknown.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    result = _run(process, ["drbdsetup", *argv])
    return () if result.failed else drbd_state.parse_generations(result.stdout)


def setup(process: Runner, *argv: str, secret: str = "") -> str | None:
    """Run a command of ``drbdsetup``; return why it failed, None if it did not.

    Args:
        process: runs the tool.
        argv: command and arguments.
        secret: a word of ``argv`` that is kept out of the result.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    return _failure(_run(process, ["drbdsetup", *argv]), f"drbdsetup {argv[0]}", secret)


def create_metadata(
    process: Runner, device: str, layout: str, options: Sequence[str]
) -> str | None:
    """Write empty metadata to a device; return why it failed, None if it did not.

    Args:
        process: runs the tool.
        device: the path.
        layout: word for the layout of the metadata.
        options: what follows the command.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    argv = ["drbdmeta", "--force", _NO_MINOR, layout, device, "0", "create-md"]
    argv += options
    return _failure(_run(process, argv), "drbdmeta create-md", "")


def set_generation(
    process: Runner, device: str, layout: str, generation: str
) -> str | None:
    """Mark the data beside metadata as complete, with an identifier of its own.

    Return why it failed, None if it did not.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    # No earlier generations; consistent, up to date.
    argv = ["drbdmeta", "--force", _NO_MINOR, layout, device, "0", "set-gi"]
    argv.append(f"{generation}:0:0:0:1:1")
    return _failure(_run(process, argv), "drbdmeta set-gi", "")


def new_generation() -> str:
    """Return an identifier for data that no other node has; its last bit is a role."""
    return f"{secrets.randbits(63) << 1:016X}"


def apply_log(process: Runner, device: str, layout: str) -> str | None:
    """Apply the activity log of metadata, which a disk needs before it is attached.

    Return why it failed, None if it did not; unchanged metadata stays as it is.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    argv = ["drbdmeta", "--force", _NO_MINOR, layout, device, "0", "apply-al"]
    return _failure(_run(process, argv), "drbdmeta apply-al", "")


def _run(process: Runner, argv: Sequence[str]) -> Any:
    try:
        return process.run_bounded(
            list(argv), env=_ENVIRONMENT, timeout_s=_TIMEOUT_S, max_output=_MAX_OUTPUT
        )
    except errors.CommandError as err:
        raise errors.StorageError(
            f"cannot use DRBD: {argv[0]} cannot be run; its tools are in the package"
            " drbd-utils"
        ) from err


def _failure(result: Any, what: str, secret: str) -> str | None:
    if not result.failed:
        return None
    text = _messages(result)
    return f"{what}: {text.replace(secret, '***') if secret else text}"


def _messages(result: Any) -> str:
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return f"{result.reason}: {'; '.join(lines[-6:]) or 'no output'}"


def disk_options(params: Mapping[str, Any]) -> list[str]:
    """Return the options of a disk for its parameters."""
    barriers = params.get("disk-barriers") or "n"
    # After an error of its disk a node goes on with the data of its peer.
    out = ["--on-io-error=detach"]
    for letter, option in (
        ("b", "disk-barrier"),
        ("f", "disk-flushes"),
        ("d", "disk-drain"),
    ):
        out.append(f"--{option}={'no' if letter in barriers else 'yes'}")
    out.append(f"--md-flushes={'no' if params.get('meta-barriers') else 'yes'}")
    return out


def sync_options(params: Mapping[str, Any]) -> list[str]:
    """Return the options of a synchronisation for the parameters of a disk."""
    if params.get("dynamic-resync"):
        names = ("c-plan-ahead", "c-fill-target", "c-delay-target")
        return [
            f"--{name}={params[name]}"
            for name in (*names, "c-max-rate", "c-min-rate")
            if params.get(name) is not None
        ]
    rate = params.get("resync-rate")
    # Zero switches the dynamic control of the rate off, without which the rate counts.
    return ["--c-plan-ahead=0", *([f"--resync-rate={rate}"] if rate else [])]


def net_options(params: Mapping[str, Any]) -> list[str]:
    """Return the options of a connection for its parameters, without a secret.

    Split brains are solved alone if one node has changed nothing.

    Raises:
        StorageError: custom options cannot be split into words.
    """
    return [
        f"--protocol={params.get('protocol') or 'C'}",
        "--after-sb-0pri=discard-zero-changes",
        "--after-sb-1pri=consensus",
        *custom_options(params, "net-custom"),
    ]


def custom_options(params: Mapping[str, Any], name: str) -> list[str]:
    """Return the options that an administrator wrote, as words.

    Raises:
        StorageError: they cannot be split.
    """
    text = str(params.get(name) or "")
    try:
        return shlex.split(text)
    except ValueError as err:
        raise errors.StorageError(
            f"disk parameter {name}: cannot be split into words: {err}"
        ) from err


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
            *disk_options(params),
            *sync_options(params),
            *custom_options(params, "disk-custom"),
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
        return drbd_state.parse_status_9(printed(process, ("status", "all", "--json")))

    @staticmethod
    def resources(text: str) -> dict[str, Resource]:
        """Return name -> settings in the output of ``drbdsetup show``."""
        return drbd_state.parse_show_9(text)

    def generations(self) -> Argv:
        """Print the generation identifiers of the data, as compared with the peer."""
        return ("get-gi", *self._peer, _VOLUME)

    def new_resource(self) -> Argv:
        """Make the resource; only a command makes a node primary."""
        node = str(self._place.node_id)
        return ("new-resource", self._name, node, "--auto-promote=no", "--quorum=off")

    def _disk(self, params: Params) -> list[str]:
        return [
            *disk_options(params),
            *custom_options(params, "disk-custom"),
        ]

    def change_disk(self, known: Resource, params: Params) -> list[Argv]:
        """Change the parameters of a disk; those of a copy belong to its connection."""
        changes = super().change_disk(known, params)
        return [*changes, self._copying(params)] if known.remote else changes

    def _copying(self, params: Params) -> Argv:
        options = sync_options(params)
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
        proc: text of `read_proc`.
    """
    numbers = drbd_state.parse_version(proc)
    return BY_MAJOR[numbers[0] if numbers else 8]


def mirrors(process: Runner) -> dict[int, Mirror]:
    """Return minor -> state of all devices of this node.

    Raises:
        StorageError: DRBD or its tools are missing, or of an unknown generation.
    """
    proc = read_proc()
    return of_kernel(proc).mirrors(process, proc)


def resources(process: Runner) -> dict[str, Resource]:
    """Return name -> settings of all resources of this node.

    Raises:
        StorageError: see `mirrors`; or a tool failed.
    """
    text = printed(process, ("show", "all"))
    return of_kernel(read_proc()).resources(text)
