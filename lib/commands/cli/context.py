"""Context of a running command: its options, the node's paths, output, the master.

`app.main` makes one `CommandContext` per run and passes it to the command. Nothing here
depends on a particular command.
"""

import functools
import io
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TextIO

from ganeti.base import pathutils
from ganeti.base.constants.misc import LUXI_OVERRIDE
from ganeti.base.text.control_chars import render
from ganeti.commands.cli.model import Command, Program
from ganeti.commands.cli.parser import Values

#: Lines per write.
_LINES_AT_ONCE: Final = 64
#: File name of errors of stdout.
STDOUT: Final = "standard output"


class Master(Protocol):
    """The connection to the master daemon; see `ganeti.protocols.luxi`."""

    def call(self, method: str, args: list[Any], /) -> Any:
        """Return the result of one method."""

    def hurry(self, *, connect_s: float, answer_s: float) -> None:
        """Wait no longer than this for a listener and for answers."""


def tcp_ping(address: str, port: int, timeout_s: float) -> bool:
    """Return whether a program accepts connections at an address."""
    from ganeti.base.net import netutils

    return netutils.tcp_ping(address, port, timeout_s=timeout_s, live_port_needed=True)


def columns(stream: TextIO) -> int:
    """Return the width of the terminal of a stream; 0 if it has none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


class ClientEffects(NamedTuple):
    """Effects of a command; tests pass their own."""

    environ: Mapping[str, str]
    connect: Callable[[pathutils.Paths, Callable[[str], None]], Master]
    stdout: TextIO
    stderr: TextIO
    stdin: TextIO
    open_terminal: Callable[[], TextIO | None]
    now: Callable[[], float]
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    tcp_ping: Callable[[str, int, float], bool] = tcp_ping
    columns: Callable[[TextIO], int] = columns


def connect(
    paths: pathutils.Paths, on_wait: Callable[[str], None], *, override: str = ""
) -> Master:
    """Return a client of this node's master daemon, which connects at the first call.

    Args:
        paths: of this node.
        on_wait: called with what the client waits for, if that takes long.
        override: another socket: ``master``, ``query`` or a path.
    """
    from ganeti.protocols import luxi

    def warn(text: str) -> None:
        # On stderr, so that scripts which read the output go on to work.
        if text not in shown:
            shown.add(text)
            sys.stderr.write(f"Warning: {render(text)}\n")

    shown: set[str] = set()
    client = luxi.Client.of_node(paths, override=override, on_warning=warn)
    client.on_wait = on_wait
    return client


class _TwoWay(io.BufferedRWPair):
    """Buffers of a terminal, which cannot seek and so cannot share one buffer."""

    def __init__(self, raw: io.FileIO) -> None:
        super().__init__(raw, raw)
        self._raw = raw

    def fileno(self) -> int:
        """Return the descriptor of the terminal."""
        return self._raw.fileno()


def open_terminal(path: str = "/dev/tty") -> TextIO | None:
    """Return the controlling terminal for questions, or None."""
    try:
        raw = io.FileIO(os.open(path, os.O_RDWR | os.O_NOCTTY), "r+")
    except OSError:
        return None
    pair: Any = _TwoWay(raw)
    return io.TextIOWrapper(pair, line_buffering=True, write_through=True)


def real_effects() -> ClientEffects:
    """Return the effects of this process."""
    return ClientEffects(
        environ=os.environ,
        connect=functools.partial(connect, override=os.environ.get(LUXI_OVERRIDE, "")),
        stdout=sys.stdout,
        stderr=sys.stderr,
        stdin=sys.stdin,
        open_terminal=open_terminal,
        now=time.time,
    )


class CommandContext:
    """One run of one command.

    Attributes:
        program: the program's row.
        command: the command's row.
        word: the command as typed, perhaps an alias.
        opts: option values by name.
        args: positional arguments.
        effects: the client's effects.
        progress_text: the present text on the terminal's last line.
        hints_shown: hints that were printed already.
        last_method: the last method of the master that was called; empty for none.
        jobs: ids of submitted jobs whose end the command has not seen.
        position: which of several jobs is waited for, for the line of progress.
    """

    def __init__(
        self, program: Program, command: Command, word: str, *, effects: ClientEffects
    ) -> None:
        self.program = program
        self.command = command
        self.word = word
        self.effects = effects
        self.opts = Values()
        self.args: list[str] = []
        self.progress_text = ""
        self.hints_shown: set[str] = set()
        self.last_method = ""
        self.jobs: set[int] = set()
        self.position = ""
        self._master: Master | None = None

    @functools.cached_property
    def paths(self) -> pathutils.Paths:
        """The paths on this node."""
        return pathutils.from_environ(self.effects.environ)

    def call(self, method: str, *args: Any) -> Any:
        """Return the result of a LUXI method.

        Raises:
            GenericError: the master's error, the master cannot be reached, or its
                answer does not have the documented form.
        """
        from ganeti.protocols.luxi import answers

        self.last_method = method
        answer = self._connected().call(method, list(args))
        answers.check(method, args, answer)
        return answer

    def hurry(self, *, connect_s: float, answer_s: float) -> None:
        """Have calls wait no longer for the master daemon, see `luxi.Client.hurry`."""
        self._connected().hurry(connect_s=connect_s, answer_s=answer_s)

    def _connected(self) -> Master:
        if self._master is None:
            self._master = self.effects.connect(self.paths, self._note_wait)
        return self._master

    def _note_wait(self, text: str) -> None:
        if self.shows_progress:
            self.progress(text)

    def out(self, text: str = "", *, is_styled: bool = False) -> None:
        """Print lines on stdout, with control characters escaped.

        Args:
            text: the lines.
            is_styled: the text has colours; the caller escaped everything else.
        """
        self.progress("")
        try:
            # A listing can be large: do not copy it only to append the newline.
            self.effects.stdout.write(text if is_styled else render(text))
            self.effects.stdout.write("\n")
            self.effects.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as err:
            raise OSError(err.errno, err.strerror, STDOUT) from err

    def out_lines(self, lines: Iterable[str], *, is_styled: bool = False) -> None:
        """Print lines on stdout unless all of them are empty; see `out`.

        Lines are written in groups: a listing of a large cluster has tens of megabytes.
        """
        left = iter(lines)
        is_first = True
        while chosen := list(itertools.islice(left, _LINES_AT_ONCE)):
            text = "\n".join(chosen)
            if text or not is_first:
                self.out(text, is_styled=is_styled)
            is_first = False

    def err(self, text: str = "", *, is_styled: bool = False) -> None:
        """Print lines on stderr; see `out`."""
        self.progress("")
        self.effects.stderr.write(f"{text if is_styled else render(text)}\n")
        self.effects.stderr.flush()

    def progress(self, text: str) -> None:
        """Show progress on the terminal's last line; an empty text clears it.

        A longer text than the line is cut: only one line can be drawn again.
        """
        text = render(text)
        most = self.effects.columns(self.effects.stderr) - 1 if text else 0
        if 0 < most < len(text):
            text = f"{text[: max(0, most - 3)]}..."
        if text == self.progress_text:
            return
        blank = " " * len(self.progress_text)
        self.progress_text = text
        self.effects.stderr.write(f"\r{blank}\r{text}")
        self.effects.stderr.flush()

    @property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal."""
        return self.effects.stderr.isatty()

    def option(self, name: str, default: Any = None) -> Any:
        """Return the value of an option that not every command has."""
        return vars(self.opts).get(name, default)
