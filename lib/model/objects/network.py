"""The network record."""

from typing import ClassVar

from ganeti.model.objects.base import Record


class Network(Record, frozen=True, kw_only=True):
    """An IPv4 network and its address pool."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        (
            "mac_prefix",
            "network6",
            "gateway",
            "gateway6",
            "reservations",
            "ext_reservations",
        )
    )

    #: Not empty.
    name: str
    network: str
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    mac_prefix: str | None = None
    network6: str | None = None
    gateway: str | None = None
    gateway6: str | None = None
    #: One character per address of the range, 1 taken.
    reservations: str | None = None
    #: Reserved by administrators: network and broadcast address, gateway, excluded
    #: ones.
    ext_reservations: str | None = None
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()
