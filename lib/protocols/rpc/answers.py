"""Types of answers: what a node must return so that the master reads it.

A node is not trusted, so each answer is converted to the type that the declaration of
its procedure names; an answer that does not fit is a failed call. A type names the
containers and the kinds of values that the master's code relies on. Bounds of values,
and meaning, are checked where the values are used.
"""

from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

Scalar = bool | int | float | str | None
#: One that the master can calculate with.
Number = Annotated[int, Meta(ge=-(2**53), le=2**53)] | float
#: Named values of one object, such as a guest or a host.
Facts = dict[str, Scalar]
#: A size or count, also as text of the node's tools.
_Count = Number | Annotated[str, Meta(pattern=r"^[0-9]{1,18}\Z")] | None


class Guest(msgspec.Struct, frozen=True):
    """A guest on a node; false if the node does not have it."""

    memory: Number | None = None
    vcpus: Number | None = None
    time: Number | None = None
    state: int | str | None = None
    stuck: Number | None = None

    def __bool__(self) -> bool:
        # A node answers about a missing guest with an object without members.
        return self != NO_GUEST

    @property
    def is_shut_down(self) -> bool:
        """Whether it powered itself off; old nodes say so with a word."""
        return self.state in (1, "shutdown")

    @property
    def is_running(self) -> bool:
        """Whether the node has it, and it did not power itself off."""
        return bool(self) and not self.is_shut_down


NO_GUEST: Final = Guest()


class Host(msgspec.Struct, frozen=True):
    """Resources of a node; sizes in MiB."""

    memory_total: _Count = None
    memory_free: _Count = None
    memory_dom0: _Count = None
    cpu_total: _Count = None
    cpu_dom0: _Count = None
    cpu_nodes: _Count = None
    cpu_sockets: _Count = None
    hv_version: Any = None


class Space(msgspec.Struct, frozen=True):
    """The space of a storage unit, in MiB, or spindles."""

    type: Scalar = None
    name: Scalar = None
    storage_free: _Count = None
    storage_size: _Count = None


class NodeInfo(NamedTuple):
    """The state of a node; None stands for parts not asked for, or unreadable."""

    boot_id: Scalar
    storage: list[Space | None] | None
    hosts: list[Host | None] | None

    @property
    def space(self) -> Space:
        """The space of the first storage unit."""
        return (self.storage or [None])[0] or Space()

    @property
    def host(self) -> Host:
        """The resources that the first hypervisor reports."""
        return (self.hosts or [None])[0] or Host()


class NodeStatus(msgspec.Struct, frozen=True):
    """The report of a node for the state of the cluster; see ``node_status``."""

    release: Annotated[str, Meta(max_length=100)]
    guests: dict[str, Guest]
    host: Host
    certificates: Annotated[
        dict[Annotated[str, Meta(max_length=100)], Number], Meta(max_length=20)
    ]


class BlockDevice(msgspec.Struct, frozen=True):
    """The state of a disk on a node; ``ldisk_status`` is one of `disks.LDS_NAMES`."""

    dev_path: str | None = ""
    major: Any = None
    minor: Any = None
    sync_percent: Number | None = None
    estimated_time: Number | None = None
    is_degraded: bool | None = None
    ldisk_status: Annotated[int, Meta(ge=1, le=4)] | None = None
    mirror: dict[str, Any] | None = None


class DeviceRow(NamedTuple):
    """The state of one of several disks, or an error."""

    is_known: bool
    status: BlockDevice | str | None


class Size(NamedTuple):
    """The size of a disk."""

    in_bytes: Number
    spindles: Number | None


class Volume(NamedTuple):
    """A logical volume; its size in MiB, which may be a text."""

    size: str | Number
    is_inactive: bool
    is_open: bool


class Transfer(msgspec.Struct, frozen=True):
    """The state of one end of a copy of a disk."""

    exit_status: int | None = None
    listen_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    error_message: str | None = None
    recent_output: list[str] | None = None
    progress_mbytes: Number | None = None
    progress_throughput: Number | None = None
    progress_eta: Number | None = None


class Migration(msgspec.Struct, frozen=True):
    """The state of a migration on its source; sizes in bytes."""

    status: Scalar = None
    postcopy_status: Scalar = None
    error: Any = None
    is_stopped: Scalar = None
    total_ram: Number | None = None
    remaining_ram: Number | None = None
    transferred_ram: Number | None = None

    @property
    def is_completed(self) -> bool:
        """Whether the guest has been sent."""
        return self.status == "completed"

    @property
    def has_left(self) -> bool:
        """Whether the source has given the guest up."""
        return self.is_completed or bool(self.postcopy_status)


class Firmware(NamedTuple):
    """Copies of UEFI variables and TPM: compressed, in base64; empty without any."""

    firmware_state: str
    tpm_state: str


class Heartbeat(NamedTuple):
    """The process that writes heartbeats of a node, and the number of the last one."""

    writer: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    number: Annotated[int, Meta(ge=0, le=2**53)]


class Reached(NamedTuple):
    """Which parts of another node react."""

    daemon: bool
    ssh: bool


class HelperResult(NamedTuple):
    """The state of an installation, and the last lines of its output."""

    state: Literal["none", "started", "ended", "wrong"]
    code: Annotated[int, Meta(ge=0, le=255)] | None
    lines: Annotated[list[Annotated[str, Meta(max_length=2000)]], Meta(max_length=20)]


class ScriptResult(NamedTuple):
    """The result of a hook script; ``status`` is one of `hooks.HKR_*`."""

    script: str
    status: int
    output: str


class HelperAnswer(NamedTuple):
    """The output of an out-of-band helper, or an error."""

    is_good: bool
    output: Any


#: An element of a list in the description of an operating system.
_Item = Scalar | list[Scalar]
_Items = list[_Item] | None


class OsDefinition(NamedTuple):
    """An operating system as a node offers it."""

    name: str
    path: Scalar
    is_valid: bool
    message: Scalar
    variants: _Items
    parameters: _Items
    api_versions: _Items
    is_trusted: bool


class Provider(NamedTuple):
    """A provider of external storage, with name and text of its parameters."""

    name: str
    path: Scalar
    is_valid: bool
    message: Scalar
    parameters: list[tuple[str, Scalar]] | None
