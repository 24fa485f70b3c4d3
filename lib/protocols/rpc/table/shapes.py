"""Shapes of answers: what a node must return so that the master reads it.

A node is not trusted, so the runner compares each answer with the shape of its
procedure; an answer of another shape is a failed call. A shape names the containers and
the kinds of values that the master's code relies on. Bounds of values, and meaning, are
checked where the values are used. Shapes are types as `msgspec.convert` takes them.
"""

from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta

Scalar = bool | int | float | str | None
#: One that the master can calculate with.
Number = Annotated[int, Meta(ge=-(2**53), le=2**53)] | float
#: Named values of one object, such as a guest or a host.
Facts = dict[str, Scalar]
#: A size or count, also as text of the node's tools.
_Count = Number | Annotated[str, Meta(pattern=r"^[0-9]{1,18}\Z")] | None


class _Guest(TypedDict, total=False):
    """Values of a running guest that enter calculations."""

    memory: Number
    vcpus: Number
    time: Number
    state: int | str
    stuck: Number


class _Host(TypedDict, total=False):
    """The same of a host."""

    memory_total: _Count
    memory_free: _Count
    memory_dom0: _Count
    cpu_total: _Count
    cpu_dom0: _Count
    cpu_nodes: _Count
    cpu_sockets: _Count


class _Space(TypedDict, total=False):
    """The same of a storage unit."""

    type: Scalar
    name: Scalar
    storage_free: _Count
    storage_size: _Count


_Amount = Number | None


class _BlockDevice(TypedDict, total=False):
    """The state of a disk on a node; ``ldisk_status`` is one of `disks.LDS_NAMES`."""

    dev_path: str | None
    sync_percent: _Amount
    estimated_time: _Amount
    is_degraded: bool | None
    ldisk_status: Annotated[int, Meta(ge=1, le=4)] | None
    mirror: dict[str, Any] | None


class _Transfer(TypedDict, total=False):
    """The state of one end of a copy of a disk."""

    exit_status: int | None
    listen_port: Annotated[int, Meta(ge=1, le=65535)] | None
    error_message: str | None
    recent_output: list[str] | None
    progress_mbytes: _Amount
    progress_throughput: _Amount
    progress_eta: _Amount


#: Id of the process that writes heartbeats of a node, and the number of the last one.
_Heartbeat = tuple[
    Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")],
    Annotated[int, Meta(ge=0, le=2**53)],
]
#: State of an installation, exit code of its script, last lines of the output.
_HelperResult = tuple[
    Literal["none", "started", "ended", "wrong"],
    Annotated[int, Meta(ge=0, le=255)] | None,
    Annotated[list[Annotated[str, Meta(max_length=2000)]], Meta(max_length=20)],
]
#: An element of a list in the description of an operating system.
_Item = Scalar | list[Scalar]
_Items = list[_Item] | None
#: Name and text of each parameter of a storage provider.
_Parameters = list[tuple[str, Scalar]] | None

#: Shapes by procedure. Those that are missing have an answer that nobody reads, or one
#: that its reader takes apart itself, value by value.
SHAPES: Final[dict[str, Any]] = {
    "all_instances_info": dict[str, _Guest],
    "bdev_sizes": dict[str, Number],
    "blockdev_assemble": list[Scalar],
    "blockdev_find": list[Any] | dict[str, Any] | None,
    "blockdev_getdimensions": list[tuple[Number, Number | None] | None],
    "blockdev_getmirrorstatus_multi": list[tuple[bool, _BlockDevice | str | None]],
    "export_info": str,
    "export_list": list[str],
    "extstorage_diagnose": list[tuple[str, Scalar, bool, Scalar, _Parameters]],
    "get_file_info": tuple[bool, Facts],
    "get_watcher_pause": Number | None,
    "guest_addresses": dict[str, list[Any]],
    "guest_firmware": tuple[str, str],
    "guest_thaw": bool,
    "helper_result": _HelperResult,
    "hooks_runner": list[tuple[str, int, str]],
    "iallocator_runner": str,
    "impexp_status": Annotated[list[_Transfer | None], Meta(min_length=1)],
    "instance_get_migration_status": dict[str, Any],
    "instance_info": _Guest,
    "instance_left": _Guest,
    "instance_list": list[str],
    "lv_list": dict[str, tuple[str | Number, bool, bool]],
    "master_node_name": str,
    "node_crypto_tokens": list[tuple[str, str]],
    "node_has_ip_address": bool,
    "node_heartbeats": list[_Heartbeat | None],
    "node_info": tuple[Scalar, list[_Space | None] | None, list[_Host | None] | None],
    "node_verify": dict[str, Any],
    "node_verify_light": dict[str, Any],
    "node_reaches": list[tuple[bool, bool]],
    "node_volumes": list[Facts],
    "os_diagnose": list[tuple[str, Scalar, bool, Scalar, _Items, _Items, _Items, bool]],
    "os_validate": bool,
    "run_oob_many": list[tuple[bool, Any]],
    "storage_list": list[list[Scalar]],
    "store_apply": Facts,
    "store_install": Facts,
    "store_promise": Facts,
    "store_status": Facts,
    "term_confirm": bool,
    "term_review": str,
    "term_vouch": bool,
    "version": int,
    "vg_list": dict[str, Number],
    "x509_cert_create": tuple[str, str],
}
