"""The node record."""

from typing import Any, ClassVar

from ganeti.model.objects.base import Record


class Node(Record, frozen=True, kw_only=True):
    """One machine of the cluster."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        ("hv_state_static", "disk_state_static", "ssh_host_keys")
    )

    #: DNS name.
    name: str
    primary_ip: str
    #: Equals primary_ip on single-homed clusters.
    secondary_ip: str
    #: At most one of the three.
    master_candidate: bool
    #: At most one of the three.
    offline: bool
    #: At most one of the three.
    drained: bool
    group: str
    master_capable: bool
    vm_capable: bool
    #: May be {}.
    ndparams: dict[str, Any]
    #: State recorded from out-of-band commands.
    powered: bool
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    hv_state_static: dict[str, Any] = {}
    disk_state_static: dict[str, Any] = {}
    #: Public keys of its SSH server, ``type base64``; not in Ganeti, where nodes share
    #: those of the first master. Empty if they are not recorded.
    ssh_host_keys: tuple[str, ...] = ()
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()
