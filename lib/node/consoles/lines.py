"""Lines to the consoles of guests: sockets of emulators, and programs on a terminal.

Nothing here waits: reading and writing return at once. The connection to a socket of
TCP is one within this machine.
"""

import contextlib
import errno
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ganeti.base import errors
from ganeti.node.hypervisor.base import ConsolePlace

#: Seconds for a connection within this machine.
_CONNECT_S: Final = 2.0
#: Gives a program a session whose terminal is its own: with the node daemon, the
#: terminal goes, and with the terminal the program.
_OWN_SESSION: Final = ("setsid", "-c")
#: Rows and columns of a terminal whose viewer's size is not known.
_SIZE: Final = struct.pack("HHHH", 24, 80, 0, 0)
#: All that programs of consoles get of the environment.
_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "vt220",
}


class Line(Protocol):
    """One end of a console."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def receive_now(self, size: int) -> bytes | None:
        """Return the next bytes, empty at the end, None if there are none now."""

    def send_now(self, data: bytes) -> int:
        """Write what is taken now; return the number of bytes."""

    def end_input(self) -> None:
        """Pass on that nothing more is sent."""

    def close(self) -> None:
        """Close the line, and end its program."""


class SocketLine:
    """A connection to a socket of an emulator."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._sock.fileno()

    def receive_now(self, size: int) -> bytes | None:
        """See `Line`."""
        try:
            return self._sock.recv(size)
        except BlockingIOError:
            return None

    def send_now(self, data: bytes) -> int:
        """See `Line`."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    def end_input(self) -> None:
        """See `Line`."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """See `Line`."""
        self._sock.close()


class ProgramLine:
    """A program on a terminal of its own, such as ``xl console``."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Start the program. Raises OSError."""
        self._fd, end = pty.openpty()
        try:
            os.set_blocking(self._fd, False)
            fcntl.ioctl(end, termios.TIOCSWINSZ, _SIZE)
            self._child = subprocess.Popen(
                (*_OWN_SESSION, *argv),
                stdin=end,
                stdout=end,
                stderr=end,
                env=_ENVIRONMENT,
            )
        except OSError:
            os.close(self._fd)
            raise
        finally:
            os.close(end)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def receive_now(self, size: int) -> bytes | None:
        """See `Line`."""
        try:
            return os.read(self._fd, size)
        except BlockingIOError:
            return None
        except OSError as err:
            if err.errno == errno.EIO:  # the program has ended
                return b""
            raise

    def send_now(self, data: bytes) -> int:
        """See `Line`."""
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0

    def end_input(self) -> None:
        """Do nothing: for a guest, the end of the input would be a key."""

    def close(self) -> None:
        """See `Line`."""
        os.close(self._fd)
        # It only passes bytes on, so it has nothing to finish.
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                end(self._child.pid, signal.SIGKILL)
        # One that hangs in the kernel must not stop the consoles of others.
        threading.Thread(target=self._child.wait, daemon=True).start()


def connect(place: ConsolePlace) -> Line:
    """Return a connection to a socket of an emulator.

    Raises:
        HypervisorError: nothing listens there.
    """
    try:
        if not place.path:
            address = (place.host, place.port)
            return SocketLine(socket.create_connection(address, _CONNECT_S))
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(place.path)
        except OSError:
            sock.close()
            raise
        return SocketLine(sock)
    except BlockingIOError as err:
        raise errors.HypervisorError("others wait for this console already") from err
    except OSError as err:
        raise errors.HypervisorError(f"no connection: {err.strerror or err}") from err


def start(argv: Sequence[str]) -> Line:
    """Return a program's terminal. Raises HypervisorError if it cannot be started."""
    try:
        return ProgramLine(argv)
    except OSError as err:
        raise errors.HypervisorError(f"{argv[0]}: {err.strerror or err}") from err


#: Opens the line of a console; raises GenericError.
Opener = Callable[[], Line]
