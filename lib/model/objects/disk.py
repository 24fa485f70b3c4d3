"""The disk record."""

from typing import Any, ClassVar

from ganeti.model.objects.base import Record


class Disk(Record, frozen=True, kw_only=True):
    """One disk, or one part of it."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        ("name", "spindles", "params", "forthcoming")
    )

    #: Decides the form of logical_id; diskless never occurs.
    dev_type: str
    #: See logical_ids.
    logical_id: tuple[Any, ...]
    size: int
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    #: Nested whole objects, each with its own uuid and serial_no; only drbd has
    #: them: data, then metadata.
    children: "tuple[Disk, ...]" = ()
    #: Nodes that hold it; drbd and its children list both.
    nodes: tuple[str, ...] = ()
    #: Disk/N by position for top-level disks, "" for children.
    iv_name: str = ""
    mode: str = "rw"
    name: str | None = None
    spindles: int | None = None
    #: Normally {}; provider parameters of ext disks.
    params: dict[str, Any] | None = None
    #: Whether it is reserved only, see the field of instances.
    forthcoming: bool = False
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
