"""Instance and NIC records."""

from typing import Any, ClassVar

from ganeti.constants.instance import CREATION_INTERRUPTED
from ganeti.objects.base import Record


class Nic(Record, frozen=True, kw_only=True):
    """One network card of an instance."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(("ip", "network", "name"))

    #: Lower case.
    mac: str
    #: May be {}.
    nicparams: dict[str, Any]
    uuid: str
    ip: str | None = None
    network: str | None = None
    name: str | None = None


class Instance(Record, frozen=True, kw_only=True):
    """One virtual machine: what it should be, not what it is doing."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        ("network_port", "forthcoming", "creation")
    )

    name: str
    primary_node: str
    os: str
    hypervisor: str
    admin_state: str
    admin_state_source: str
    #: Whether disks should be assembled.
    disks_active: bool
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    #: Only overrides.
    hvparams: dict[str, Any] = {}
    beparams: dict[str, Any] = {}
    osparams: dict[str, Any] = {}
    #: Clear text here, masked in answers.
    osparams_private: dict[str, Any] = {}
    #: In order, embedded.
    nics: tuple[Nic, ...] = ()
    #: In order, refer to the top-level disks map.
    disks: tuple[str, ...] = ()
    #: For consoles (VNC and so on), shared range with DRBD ports.
    network_port: int | None = None
    #: See forthcoming.
    forthcoming: bool = False
    #: ``installing`` while its creation runs the OS script, ``interrupted`` if the
    #: creation ended before the script; empty otherwise. Not in config.data.
    creation: str = ""
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()

    @property
    def is_unfinished(self) -> bool:
        """Whether its creation ended before its operating system was installed."""
        return self.creation == CREATION_INTERRUPTED
