"""Instance and NIC records."""

from typing import Any, ClassVar

from ganeti.base.constants.instance import (
    CREATION_INSTALLING,
    CREATION_INTERRUPTED,
    CREATION_RENAME_CUT,
)
from ganeti.model.objects.base import Record


class Reservation(Record, frozen=True, kw_only=True):
    """The terms of a reservation; kept after the instance was created."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(("disk_template",))

    #: Seconds since 1970 at which it may be released; 0 for never.
    expires: float = 0.0
    #: Free text: who needs it.
    owner: str = ""
    #: ``low``, ``normal`` or ``high``, see `ganeti.base.constants.instance`.
    priority: str = "normal"
    #: Template that was wanted last, for the first disk; empty for the default.
    disk_template: str = ""


class CreationRequest(Record, frozen=True, kw_only=True):
    """The request that made an instance, so that its repetition makes no second one."""

    #: Chosen by the client; unique in the cluster.
    key: str
    #: Of the parameters of the request.
    digest: str


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
        (
            *("network_port", "forthcoming", "creation", "reservation", "request"),
            *("firmware_state", "tpm_state"),
        )
    )

    #: The uuid as long as a forthcoming instance has no name.
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
    #: Whether it is only planned: its resources are reserved, and nothing is created
    #: on nodes.
    forthcoming: bool = False
    #: None if its resources were never reserved. Not in config.data.
    reservation: Reservation | None = None
    #: None if its creation had no key. Not in config.data.
    request: CreationRequest | None = None
    #: ``installing`` while its creation or reinstallation runs the OS script,
    #: ``interrupted`` if that ended before the script; ``renaming`` and
    #: ``rename-interrupted`` are the same of a rename; empty otherwise. Not in
    #: config.data.
    creation: str = ""
    #: Copy of the UEFI variables, for a start on another node: compressed, in base64.
    #: Not in config.data.
    firmware_state: str = ""
    #: Copy of the state of its TPM, likewise. It has the keys of the guest.
    tpm_state: str = ""
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()

    @property
    def is_unfinished(self) -> bool:
        """Whether a creation, reinstallation or rename ended before the OS script."""
        return self.creation == CREATION_INTERRUPTED or self.is_half_renamed

    @property
    def is_half_renamed(self) -> bool:
        """Whether a rename ended before the OS script."""
        return self.creation == CREATION_RENAME_CUT

    @property
    def is_nameless(self) -> bool:
        """Whether it is forthcoming and has no name yet."""
        return self.name == self.uuid

    @property
    def is_reserved(self) -> bool:
        """Whether memory is reserved for it that no guest uses yet.

        Besides forthcoming instances, these are reserved ones that are being created:
        other operations may not take their memory before they start.
        """
        if self.forthcoming:
            return True
        return self.reservation is not None and self.creation == CREATION_INSTALLING
