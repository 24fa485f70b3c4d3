"""Start of an emulator that does not detach itself.

An emulator with a strict system call filter cannot fork, so it cannot become a daemon.
``setsid`` of util-linux starts it in a session of its own. The start is complete when
the emulator answers commands; a pipe that it inherits reports its end before that.
"""

import contextlib
import os
import select
from collections.abc import Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.qmp import Qmp

_POLL_S: Final = 0.02
#: Bytes of the log that an error shows.
_LOG_END: Final = 1000


def start(
    effects: NodeEffects,
    guest: Files,
    command: Sequence[str],
    fds: Sequence[int],
    timeout_s: float,
) -> None:
    """Start an emulator and wait until it answers.

    Args:
        effects: effect interfaces of this node.
        guest: the guest's files; its log gets the output of the emulator.
        command: the emulator and its arguments, without ``-daemonize``.
        fds: open files that the emulator inherits.
        timeout_s: time limit, in seconds.

    Raises:
        CommandError: ``setsid`` cannot be run.
        HypervisorError: the emulator ended, or does not answer in time.
    """
    with contextlib.suppress(FileNotFoundError):
        os.truncate(guest.log, 0)
    ended, alive = os.pipe()
    try:
        try:
            result = effects.process.run(
                ["setsid", "--fork", *command],
                timeout_s=timeout_s,
                output_file=guest.log,
                pass_fds=[*fds, alive],
            )
        finally:
            os.close(alive)
        if result.failed:
            raise errors.HypervisorError(
                f"instance {guest.name}: the emulator cannot be started: setsid"
                f" {result.reason}: {log_end(guest)}"
            )
        _wait_for_answer(effects, guest, ended, timeout_s)
    finally:
        os.close(ended)


def _wait_for_answer(
    effects: NodeEffects, guest: Files, ended: int, timeout_s: float
) -> None:
    deadline = effects.clock.monotonic() + timeout_s
    while not select.select([ended], [], [], _POLL_S)[0]:
        try:
            with Qmp(guest.control("qmp"), guest.name) as qmp:
                qmp.execute("query-status")
        except errors.HypervisorError as err:
            if effects.clock.monotonic() >= deadline:
                raise errors.HypervisorError(
                    f"instance {guest.name}: the emulator does not answer within"
                    f" {timeout_s:g} s: {err}"
                ) from err
        else:
            return
    raise errors.HypervisorError(
        f"instance {guest.name}: the emulator ended at its start: {log_end(guest)}"
    )


def log_end(guest: Files) -> str:
    """Return the end of the emulator's log."""
    try:
        text = files.read_end(guest.log, _LOG_END).decode(errors="replace").strip()
    except OSError:
        text = ""
    return text or f"no message, nothing in {guest.log}"
