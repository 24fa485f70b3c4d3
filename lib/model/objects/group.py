"""The node group record."""

from typing import Any, ClassVar

from ganeti.model.objects.base import Record


class NodeGroup(Record, frozen=True, kw_only=True):
    """Nodes that share policy, parameters and network connections."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        ("hv_state_static", "disk_state_static")
    )

    name: str
    ndparams: dict[str, Any]
    alloc_policy: str
    ipolicy: dict[str, Any]
    diskparams: dict[str, Any]
    #: Connections.
    networks: dict[str, Any]
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    #: Written empty; recomputed in memory from node.group.
    members: tuple[str, ...] = ()
    hv_state_static: dict[str, Any] = {}
    disk_state_static: dict[str, Any] = {}
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()
