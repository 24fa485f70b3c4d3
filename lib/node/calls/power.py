"""Power cycle of this machine, for ``node_powercycle``.

The kernel's trigger files are opened when the daemon starts. A power cycle opens no
further file, because the disk may have failed.
"""

import logging
import os
from typing import Final, Protocol, Self

from ganeti.base import errors
from ganeti.base.pathutils import Paths

_log = logging.getLogger(__name__)

SYSRQ_ENABLE: Final = "/proc/sys/kernel/sysrq"
SYSRQ_TRIGGER: Final = "/proc/sysrq-trigger"
#: File in a virtual node's root that requests a power cycle from the virtual cluster.
REQUEST_NAME: Final = "power-cycle"


class PowerSwitch(Protocol):
    """Interface for the power cycle of a machine."""

    def cycle(self) -> None:
        """Reboot immediately, without a shutdown; may not return."""


class SysrqSwitch:
    """The kernel's reset, through files that are already open."""

    def __init__(self, enable: int, trigger: int) -> None:
        self._enable = enable
        self._trigger = trigger

    @classmethod
    def open(cls, enable: str = SYSRQ_ENABLE, trigger: str = SYSRQ_TRIGGER) -> Self:
        """Open the two files.

        Raises:
            OSError: not permitted, or not supported by the kernel.
        """
        first = os.open(enable, os.O_WRONLY | os.O_CLOEXEC)
        try:
            second = os.open(trigger, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            os.close(first)
            raise
        return cls(first, second)

    def cycle(self) -> None:
        """Make the kernel reset the machine."""
        os.write(self._enable, b"1")
        os.write(self._trigger, b"b")


class VirtualSwitch:
    """Switch of a virtual node: creates a request file; never resets the machine."""

    def __init__(self, paths: Paths) -> None:
        if not paths.is_virtual:
            raise errors.ProgrammerError("a real node has no virtual power switch")
        self._path = paths.at(f"/{REQUEST_NAME}")

    def cycle(self) -> None:
        """Create the request file in the node's root."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(fd, b"requested\n")
        os.close(fd)


class NoSwitch:
    """Switch of daemons that may not reset their machine; has the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def cycle(self) -> None:
        """Refuse.

        Raises:
            HypervisorError: always, with the reason.
        """
        raise errors.HypervisorError(f"this node cannot be reset: {self._reason}")


def for_node(paths: Paths) -> PowerSwitch:
    """Return the switch of a node, ready for use."""
    if paths.is_virtual:
        return VirtualSwitch(paths)
    try:
        return SysrqSwitch.open()
    except OSError as err:
        _log.warning(
            "power cycle not available, cannot open the kernel's trigger: %s", err
        )
        return NoSwitch(str(err))
