"""``ganeti-kvm-console``: connect a terminal to a KVM guest's serial console.

Runs on the guest's node, usually over SSH by ``gnt-instance console``. A guest that was
started paused is resumed after a moment, so that its first output is visible. Control-]
leaves the console; the guest continues.
"""

import argparse
import contextlib
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final

from ganeti.base import errors, pathutils, terminal
from ganeti.base.constants import exitcodes, versions
from ganeti.base.text import arguments
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.qmp import Qmp

#: Control-], as in telnet.
_ESCAPE: Final = b"\x1d"
#: Seconds before a paused guest is resumed.
_UNPAUSE_AFTER_S: Final = 3.0
_CHUNK: Final = 4096
#: States of the emulator in which the guest waits for ``cont``.
_PAUSED: Final = frozenset({"paused", "prelaunch"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="ganeti-kvm-console",
        description="Connect to the serial console of a KVM instance on this node.",
        epilog="Control-] leaves the console.",
        formatter_class=arguments.Formatter,
    )
    version = f"ganeti-kvm-console (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument("instance", help="name of the instance")
    options = parser.parse_args(argv)
    try:
        guest = Files(pathutils.from_environ(os.environ), options.instance)
        line = connect(guest)
    except errors.GenericError as err:
        print(f"ganeti-kvm-console: {err}", file=sys.stderr)
        return exitcodes.EXIT_FAILURE
    with line, terminal.raw(sys.stdin.fileno()), _unpausing(guest, sys.stderr.buffer):
        _say(sys.stderr.buffer, f"Connected to {guest.name}, Control-] leaves.")
        relay(sys.stdin.fileno(), sys.stdout.fileno(), line)
    return exitcodes.EXIT_SUCCESS


def connect(guest: Files) -> socket.socket:
    """Return a connection to a guest's serial line.

    Raises:
        HypervisorError: the guest does not run or has no serial console.
    """
    if guest.alive_pid() is None:
        raise errors.HypervisorError(f"instance {guest.name}: not running here")
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(guest.control("serial"))
    except OSError as err:
        line.close()
        raise errors.HypervisorError(
            f"instance {guest.name}: no serial console: {err.strerror}"
        ) from err
    return line


def relay(source: int, target: int, line: socket.socket) -> None:
    """Pass bytes both ways until the guest ends, the input ends, or the escape key."""
    while True:
        ready, _, _ = select.select([source, line.fileno()], [], [])
        if line.fileno() in ready:
            data = line.recv(_CHUNK)
            if not data:
                return
            _write_all(target, data)
        if source in ready:
            data = os.read(source, _CHUNK)
            before, escape, _ = data.partition(_ESCAPE)
            if before:
                line.sendall(before)
            if escape or not data:
                return


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _say(out: BinaryIO, text: str) -> None:
    out.write(f"{text}\r\n".encode())
    out.flush()


@contextlib.contextmanager
def _unpausing(guest: Files, out: BinaryIO) -> Iterator[None]:
    """Resume a paused guest in the background, unless the user leaves before."""
    left = threading.Event()

    def work() -> None:
        with contextlib.suppress(errors.HypervisorError):
            unpause(guest, lambda text: _say(out, text), left)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        yield
    finally:
        left.set()
        worker.join()


def unpause(guest: Files, say: Callable[[str], None], left: threading.Event) -> None:
    """Resume a paused guest after a moment.

    Raises:
        HypervisorError: the emulator does not answer.
    """
    if not _is_paused(guest) or left.wait(_UNPAUSE_AFTER_S) or not _is_paused(guest):
        return
    say(f"Instance {guest.name} is paused, unpausing")
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        qmp.execute("cont")


def _is_paused(guest: Files) -> bool:
    """Return whether a guest is paused, and not because of a migration."""
    if any(map(os.path.exists, (guest.arrival_marker, guest.sent_marker))):
        return False
    with Qmp(guest.control("kvmd"), guest.name) as qmp:
        return qmp.execute("query-status")["status"] in _PAUSED
