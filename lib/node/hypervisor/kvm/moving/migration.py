"""Words of a migration that both of its ends use: status, capabilities, addresses.

`sending` and `arriving` are the ends.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.qmp import Qmp

#: Capability by which a source completes only when the target has loaded all.
RETURN_PATH: Final = "return-path"
#: Seconds that the guest may take to continue after the last byte, and the interval.
ARRIVAL_S: Final = 10.0
POLL_S: Final = 0.1
#: Status words of the emulator for a guest that is being received, for one that has
#: arrived and waits (before that it may have been started paused, and has not run
#: yet), for one whose last data is being sent, and for one that runs. The last may
#: be suspended by itself, which QEMU reports since 8.2.
INCOMING: Final = "inmigrate"
LEFT: Final = "postmigrate"
PAUSED: Final = frozenset({"paused", "prelaunch"})
ARRIVED: Final = PAUSED | {LEFT}
LAST_DATA: Final = "finish-migrate"
STOPPED: Final = frozenset({LEFT, LAST_DATA})
ALIVE: Final = frozenset({"running", "suspended"})
#: Those of a guest that has stopped by itself; it arrives as it was at its source.
HALTED: Final = frozenset(
    {"guest-panicked", "internal-error", "io-error", "shutdown", "watchdog"}
)
#: Those of an emulator whose guest has not gone on here, or has ended.
WITHOUT_GUEST: Final = STOPPED | {INCOMING, "shutdown"}


def capabilities(hvparams: Mapping[str, Any]) -> list[str]:
    """Return the capabilities that the parameters enable."""
    return [word for word in (hvparams.get("migration_caps") or "").split(":") if word]


def set_capabilities(qmp: Qmp, words: Iterable[str]) -> None:
    """Enable capabilities of an emulator."""
    rows = [{"capability": word, "state": True} for word in words]
    if rows:
        qmp.execute("migrate-set-capabilities", {"capabilities": rows})


def address(target: str, hvparams: Mapping[str, Any]) -> str:
    """Return the address of a target node in the form of the emulator."""
    host = f"[{target}]" if ":" in target else target
    return f"tcp:{host}:{hvparams['migration_port']}"


def cannot_write(guest: Files, err: OSError) -> errors.HypervisorError:
    """Return the error for files of a guest that cannot be written."""
    return errors.HypervisorError(
        f"instance {guest.name}: cannot write its files: {err}"
    )


def go_on(qmp: Qmp, guest: Files) -> None:
    """Let a guest go on that has stopped to be sent, or has arrived."""
    # First: a guest that runs must not count as one that has been stopped since.
    files.remove_file(guest.sent_marker)
    qmp.execute("cont")
