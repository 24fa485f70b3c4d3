"""``guest-freeze``: keep the file systems of a guest frozen for a limited time.

The node daemon starts it; it returns when they are frozen. A child in a session of its
own goes on: it thaws them at SIGTERM, or at the limit, whatever became of the daemon.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from ganeti.base import errors
from ganeti.node.hypervisor.kvm import agent
from ganeti.tools import common

_MAX_S: Final = 600.0
#: Seconds for further attempts to thaw, and between two of them.
_THAW_S: Final = 300.0
_PAUSE_S: Final = 1.0
_FROZEN: Final = b"frozen"


def main(argv: Sequence[str] | None = None) -> int:
    """Freeze, and leave a child that thaws."""
    parser = common.parser(
        agent.HOLDER, "Keeps a guest frozen; a helper of the node daemon."
    )
    parser.add_argument("socket", help="socket of the guest agent")
    parser.add_argument("marker", help="file that exists as long as it is frozen")
    parser.add_argument("name", help="name of the guest, for messages")
    parser.add_argument("limit", type=float, help="seconds")
    options = parser.parse_args(argv)
    if not 0 < options.limit <= _MAX_S:
        sys.stderr.write(f"{agent.HOLDER}: limit: wanted at most {_MAX_S:g} seconds\n")
        return 1
    # Blocked from the beginning: an early request counts, too.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    answers, report = os.pipe()
    if os.fork() == 0:
        os.close(answers)
        os._exit(_hold(options, report))
    os.close(report)
    with open(answers, "rb") as src:
        text = src.read()
    if text == _FROZEN:
        return 0
    sys.stderr.buffer.write(text or b"guest-freeze: was ended\n")
    return 1


def _hold(options: argparse.Namespace, report: int) -> int:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    try:
        _write_marker(options)
    except OSError as err:
        os.write(report, f"instance {options.name}: is frozen already: {err}".encode())
        return 1
    is_asked = False
    try:
        with agent.Agent(options.socket, options.name) as session:
            is_asked = True
            agent.freeze_now(session, options.name)
            os.write(report, _FROZEN)
            os.close(report)
            signal.sigtimedwait({signal.SIGTERM}, options.limit)
            with contextlib.suppress(errors.HypervisorError):
                session.execute("guest-fsfreeze-thaw", agent.FREEZE_S)
                os.unlink(options.marker)
                return 0
    except errors.HypervisorError as err:
        if is_asked:
            _thaw(options)
        else:
            # No agent has heard of it, so nothing is frozen and nothing would answer.
            os.unlink(options.marker)
        os.write(report, str(err).encode())
        return 1
    return _thaw(options)


def _write_marker(options: argparse.Namespace) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(options.marker, flags, 0o600), "w", encoding="ascii") as out:
        out.write(str(os.getpid()))


def _thaw(options: argparse.Namespace) -> int:
    """Try again and again: a frozen guest writes nothing."""
    end = time.monotonic() + _THAW_S
    while os.path.exists(options.socket) and time.monotonic() < end:
        try:
            with agent.Agent(options.socket, options.name) as session:
                session.execute("guest-fsfreeze-thaw", agent.FREEZE_S)
        except errors.HypervisorError:
            time.sleep(_PAUSE_S)
        else:
            os.unlink(options.marker)
            return 0
    # The marker stays: the next look at the guest thaws it.
    return 1


if __name__ == "__main__":
    sys.exit(main())
