"""Migration between nodes, by xl over an encrypted connection.

xl trusts whoever it receives a guest from: the stream has the guest's configuration,
with names of programs. So the program ``xen-migration`` connects both ends, and each
end demands a certificate of the cluster. It runs in the background; a file has its
result.
"""

import contextlib
import json
import os
import signal
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files, pidfile
from ganeti.base.pathutils import HOSTNAME_ENV, ROOTDIR_ENV
from ganeti.base.process import SAFE_PATH
from ganeti.node.hypervisor.base import Arrival, MigrationStatus, NodeEffects
from ganeti.node.hypervisor.xen import xl
from ganeti.node.hypervisor.xen.files import Files

PROGRAM: Final = "xen-migration"
#: Seconds until the program is in the background, and until it has ended.
_START_S: Final = 60.0
_END_S: Final = 150.0
_POLL_S: Final = 0.1
#: Seconds in which a target lets a guest go on after the decision of the source.
_FINISH_S: Final = 10.0
_REASON_LENGTH: Final = 500
_LARGEST_RESULT: Final = 65536
#: Seconds to resume a guest: xl first asks it in vain to suspend, for a minute.
_RESUME_S: Final = 240.0


def listen(
    effects: NodeEffects, guest: Files, hvparams: Mapping[str, Any], address: str
) -> None:
    """Wait for a guest on an address of this node.

    Raises:
        HypervisorError: the program does not start.
    """
    _start(effects, guest, "receive", address, hvparams)


def send(
    effects: NodeEffects,
    guest: Files,
    hvparams: Mapping[str, Any],
    address: str,
    *,
    live: bool,
) -> None:
    """Start sending a guest to the address of a node that waits for it.

    Unless ``live``, it waits until it is there.

    Raises:
        HypervisorError: the program does not start.
    """
    _start(effects, guest, "migrate" if live else "move", address, hvparams)


def _start(
    effects: NodeEffects,
    guest: Files,
    action: str,
    address: str,
    hvparams: Mapping[str, Any],
) -> None:
    paths = effects.paths
    # The result of an earlier migration would be taken for that of this one.
    end(effects, guest)
    try:
        guest.make_directories()
    except OSError as err:
        raise errors.HypervisorError(f"instance {guest.name}: {err}") from err
    argv = [
        f"{paths.tools_dir}/{PROGRAM}",
        *("--pid-file", guest.migration("pid")),
        *("--result", guest.migration("result")),
        *("--arrival", guest.migration("arrival")),
        *(action, xl.domain(guest.name), address, str(int(hvparams["migration_port"]))),
    ]
    _run(effects, guest, action, argv, _START_S)


def resume(effects: NodeEffects, guest: Files) -> None:
    """Let a guest go on that waits since its state was to be saved.

    Raises:
        HypervisorError: it still waits.
    """
    guest.make_directories()
    argv = [f"{effects.paths.tools_dir}/{PROGRAM}", "resume", xl.domain(guest.name)]
    _run(effects, guest, "resume", argv, _RESUME_S)


def _run(
    effects: NodeEffects, guest: Files, action: str, argv: list[str], timeout_s: float
) -> None:
    paths = effects.paths
    env = {"PATH": SAFE_PATH, "LC_ALL": "C"}
    if paths.is_virtual:
        env |= {ROOTDIR_ENV: paths.root, HOSTNAME_ENV: paths.hostname}
    # The log has earlier attempts, too; an error shows what this one adds.
    size = os.path.getsize(guest.log) if os.path.exists(guest.log) else 0
    try:
        result = effects.process.run(
            argv, env=env, timeout_s=timeout_s, output_file=guest.log
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(f"instance {guest.name}: {err}") from err
    if result.failed:
        raise errors.HypervisorError(
            f"instance {guest.name}: {PROGRAM} {action} {result.reason}:"
            f" {_tail(guest, size)}"
        )


def _tail(guest: Files, offset: int) -> str:
    """Return the end of the log since a place in it, in one line."""
    try:
        end = files.read_end(guest.log, _LARGEST_RESULT, start=offset)
        text = " ".join(end.decode(errors="replace").split())
    except OSError:
        text = ""
    return text[-_REASON_LENGTH:] or f"no message in {guest.log}"


def status(guest: Files) -> MigrationStatus:
    """Return the state of sending a guest."""
    # Asked first: whoever does not run any more has written its result.
    runs = is_running(guest)
    try:
        text = files.read_file(guest.migration("result"), max_size=_LARGEST_RESULT)
        result = json.loads(text)
    except FileNotFoundError:
        if runs:
            return MigrationStatus("active")
        if os.path.exists(guest.migration("pid")):
            reason = f"{PROGRAM} was killed; see {guest.log}"
            return MigrationStatus("failed", error=reason)
        return MigrationStatus("failed", error="no migration has been begun")
    except (OSError, ValueError, errors.GenericError) as err:
        return MigrationStatus("failed", error=f"its result is unknown: {err}")
    if result == {"code": 0}:
        return MigrationStatus("completed")
    known = result if isinstance(result, dict) else {}
    reason = str(known.get("reason", "unknown"))[:_REASON_LENGTH]
    return MigrationStatus("failed", error=f"{reason}; see {guest.log}")


def arrival(guest: Files) -> Arrival | None:
    """Return the state of a guest that waits here for the word of its source."""
    try:
        text = files.read_file(guest.migration("arrival"), max_size=_LARGEST_RESULT)
    except FileNotFoundError:
        return None
    is_complete = text.decode("ascii", "replace") == Arrival.COMPLETE
    return Arrival.COMPLETE if is_complete else Arrival.INCOMPLETE


def has_result(guest: Files) -> bool:
    """Return whether sending a guest has ended, and nobody has taken note of it."""
    return os.path.exists(guest.migration("result"))


def is_running(guest: Files) -> bool:
    """Return whether the program of a migration runs."""
    return pidfile.live_pid(guest.migration("pid"), PROGRAM) is not None


def wait(effects: NodeEffects, guest: Files) -> None:
    """Wait for a moment until the program has ended, which lets a guest go on."""
    deadline = effects.clock.monotonic() + _FINISH_S
    while is_running(guest) and effects.clock.monotonic() < deadline:
        effects.sleep(_POLL_S)


def end(effects: NodeEffects, guest: Files) -> None:
    """End the program of a migration if it runs, and forget its result.

    Raises:
        HypervisorError: it does not end.
    """
    stop(effects, guest)
    forget(guest)


def stop(effects: NodeEffects, guest: Files) -> None:
    """End the program of a migration if it runs; it may have got to its end before.

    Raises:
        HypervisorError: it does not end.
    """
    pid = pidfile.live_pid(guest.migration("pid"), PROGRAM)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = effects.clock.monotonic() + _END_S
        while is_running(guest):
            if effects.clock.monotonic() > deadline:
                raise errors.HypervisorError(
                    f"instance {guest.name}: {PROGRAM}, process {pid}, does not end"
                )
            effects.sleep(_POLL_S)


def forget(guest: Files) -> None:
    """Remove the result of a migration."""
    files.remove_file(guest.migration("result"))
    files.remove_file(guest.migration("arrival"))
