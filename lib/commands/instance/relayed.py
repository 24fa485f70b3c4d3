"""``console`` without SSH, and ``vnc``: consoles through the relay of a node daemon."""

import contextlib
import os
import select
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ganeti.base import errors, terminal
from ganeti.base.constants import exitcodes
from ganeti.base.filesystem import files
from ganeti.commands.cli.context import CommandContext

if TYPE_CHECKING:
    from ganeti.protocols.console.stream import Message
    from ganeti.protocols.console.viewer import Connection

#: Control-], as in telnet.
_ESCAPE: Final = b"\x1d"
_LOOPBACK: Final = "127.0.0.1"
#: Viewers of VNC and their arguments, the first one that is installed.
_VIEWERS: Final = (
    ("remote-viewer", "vnc://{host}:{port}/"),
    ("xtigervncviewer", "{host}::{port}"),
    ("vncviewer", "{host}::{port}"),
)
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")
#: Columns of the kernel's table of connections.
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7
#: A connection in another state has lost its owner, and seems to be one of root.
_ESTABLISHED: Final = "01"


def _open(ctx: CommandContext, name: str, kind: str) -> "Connection":
    """Return an open console of an instance.

    Raises:
        OpExecError: the console has a viewer, and no option says what to do then.
        GenericError: it has no such console, or its node cannot be reached.
    """
    from ganeti.protocols.console import stream, viewer

    mode: stream.Mode = "refuse"
    if ctx.opts.watch or ctx.opts.take_over:
        mode = "watch" if ctx.opts.watch else "take"
    place = viewer.Place.of(ctx.call("OpenConsole", name, kind))
    try:
        return viewer.connect(place, ctx.paths, viewer=mode)
    except stream.Refused as err:
        raise errors.OpExecError(f"node {place.node}: {err}") from err


def _code(ctx: CommandContext, last: "Message | None") -> int:
    """Show the last word of a node; return the exit status."""
    if last is None:
        return exitcodes.EXIT_SUCCESS
    ctx.err(last.text)
    is_over = last.event == "ended"
    return exitcodes.EXIT_SUCCESS if is_over else exitcodes.EXIT_FAILURE


def serial(ctx: CommandContext, name: str) -> int:
    """Connect this terminal to the serial console of an instance."""
    from ganeti.protocols.console import viewer

    with contextlib.closing(_open(ctx, name, "serial")) as console:
        source, target = ctx.effects.stdin.fileno(), ctx.effects.stdout.fileno()
        local = viewer.Local(source, target, _ESCAPE)
        with terminal.raw(source):
            last = viewer.relay(
                console, local, lambda notice: _show_notice(ctx, notice)
            )
    return _code(ctx, last)


def _show_notice(ctx: CommandContext, notice: "Message") -> None:
    # The terminal is raw, so the line needs its own return.
    leaves = "; Control-] leaves" if notice.event == "open" else ""
    ctx.effects.stderr.write(f"[{notice.text}{leaves}]\r\n")
    ctx.effects.stderr.flush()


def vnc(ctx: CommandContext) -> int:
    """Offer the display of an instance to one viewer of this machine."""
    from ganeti.protocols.console import viewer

    name = ctx.args[0]
    # Whoever cannot have the display learns that now, and not in the viewer.
    viewer.Place.of(ctx.call("OpenConsole", name, "vnc"))
    with _listening(ctx) as listener, contextlib.ExitStack() as stack:
        shown = _shown(ctx, listener)
        ctx.out(f"VNC of instance {name}: {shown}")
        program = _start_viewer(ctx, listener)
        if program is not None:
            stack.callback(program.wait)
        local = _accept(listener, program)
        if local is None:
            raise errors.OpExecError("the viewer has ended before it connected")
        stack.enter_context(local)
        listener.close()
        console = stack.enter_context(contextlib.closing(_open(ctx, name, "vnc")))
        local.setblocking(False)
        ends = viewer.Local(local.fileno(), local.fileno())
        last = viewer.relay(console, ends, lambda notice: ctx.err(notice.text))
        local.close()
    return _code(ctx, last)


@contextlib.contextmanager
def _listening(ctx: CommandContext) -> Iterator[socket.socket]:
    """Listen for the one viewer; a socket in the file system is this user's alone."""
    path = ctx.opts.socket
    family = socket.AF_UNIX if path else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(path or (_LOOPBACK, ctx.opts.port or 0))
            listener.listen(1)
        except OSError as err:
            where = path or f"{_LOOPBACK}:{ctx.opts.port}"
            raise errors.OpExecError(f"{where}: {err.strerror or err}") from err
        finally:
            os.umask(before)
        try:
            yield listener
        finally:
            if path:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)


def _shown(ctx: CommandContext, listener: socket.socket) -> str:
    if ctx.opts.socket:
        return str(ctx.opts.socket)
    return f"vnc://{_LOOPBACK}:{listener.getsockname()[1]}/"


def _start_viewer(
    ctx: CommandContext, listener: socket.socket
) -> "subprocess.Popen[bytes] | None":
    """Start a viewer, if one is installed and there is a screen for it."""
    environ = ctx.effects.environ
    has_screen = any(environ.get(name) for name in _DISPLAYS)
    if ctx.opts.no_viewer or ctx.opts.socket or not has_screen:
        return None
    for name, form in _VIEWERS:
        path = shutil.which(name)
        if path is not None:
            port = listener.getsockname()[1]
            argv = [path, form.format(host=_LOOPBACK, port=port)]
            # Its messages are not the result of this command.
            return subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    return None


def _accept(
    listener: socket.socket, program: "subprocess.Popen[bytes] | None"
) -> socket.socket | None:
    """Return the connection of a viewer of this user; None if its program has ended."""
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        if program is not None:
            ended = os.pidfd_open(program.pid)
            stack.callback(os.close, ended)
            poll.register(ended, select.POLLIN)
        while True:
            ready = [fd for fd, _event in poll.poll()]
            if listener.fileno() not in ready:
                return None
            sock, address = listener.accept()
            if listener.family == socket.AF_UNIX or _is_own(sock, address):
                return sock
            sock.close()


def _is_own(sock: socket.socket, address: tuple[str, int]) -> bool:
    """Return whether a connection is one of root or of this user.

    Each user of this machine may connect to a port of it.
    """
    ends = [_hexadecimal(*end) for end in (address, sock.getsockname())]
    for line in files.text_of("/proc/net/tcp", files.MAX_PROC).splitlines()[1:]:
        row = line.split()
        if [row[_LOCAL], row[_REMOTE]] == ends:
            is_owned = row[_STATE] == _ESTABLISHED
            return is_owned and int(row[_UID]) in (0, os.getuid())
    return False


def _hexadecimal(address: str, port: int) -> str:
    """Return an address as the kernel's table has it, in the order of the machine."""
    import sys

    number = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    return f"{number:08X}:{port:04X}"
