"""Child processes with argument lists, clean environments and time limits."""

import contextlib
import dataclasses
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Protocol, cast

from ganeti import errors

#: Search path of children: system directories only.
SAFE_PATH = "/sbin:/bin:/usr/sbin:/usr/bin"
_SAFE_ENV = {"PATH": SAFE_PATH, "LC_ALL": "C"}
_READ_BYTES = 1 << 18


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a child process.

    Attributes:
        argv: the command.
        code: exit code; None when a signal ended it.
        signal: number of the signal that ended it, or None.
        stdout: its output, decoded.
        stderr: its error output, decoded; empty when merged into stdout.
        timed_out: it was killed at its time limit.
        too_long: it was killed because it printed too much.
    """

    argv: tuple[str, ...]
    code: int | None
    signal: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    too_long: bool = False

    @property
    def failed(self) -> bool:
        """Return whether it ended other than with exit code 0."""
        return self.code != 0

    @property
    def reason(self) -> str:
        """Return the kind of its end, for messages."""
        if self.timed_out:
            return "did not end in time and was killed"
        if self.too_long:
            return "printed too much and was killed"
        if self.signal is not None:
            return f"was ended by signal {self.signal}"
        return f"exited with code {self.code}"

    @property
    def output(self) -> str:
        """Return output and error output, concatenated."""
        return self.stdout + self.stderr


class Runner(Protocol):
    """The interface to run children on this machine."""

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | bytes | None = None,
        timeout_s: float | None = None,
        output_file: str | None = None,
        pass_fds: Sequence[int] = (),
    ) -> RunResult:
        """Run a command to its end."""

    def run_bounded(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        max_output: int,
        env: Mapping[str, str] | None = None,
    ) -> RunResult:
        """Run a command that is not trusted to end well."""

    def run_trimmed(
        self, argv: Sequence[str], *, env: Mapping[str, str], max_output: int
    ) -> RunResult:
        """Run a command to its end and keep a limited part of its output."""


class Shell(Protocol):
    """A way to run programs on one machine, this one or another."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes | None = None,
        timeout_s: float | None = None,
    ) -> RunResult:
        """Run a command and wait for its end."""


class SystemRunner:
    """Runner of real children, each in its own session to kill all descendants."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: dict[threading.Thread, subprocess.Popen[bytes]] = {}
        self._ending: set[threading.Thread] = set()

    def end_children(self, thread: threading.Thread, end: bool) -> None:
        """Kill the session of the child that a thread waits for, and later ones.

        Args:
            thread: has called one of the other methods, or will.
            end: false allows the thread to run children again.
        """
        with self._lock:
            if not end:
                self._ending.discard(thread)
                return
            self._ending.add(thread)
            child = self._children.get(thread)
            if child is not None and child.returncode is None:
                _kill_session(child)

    @contextlib.contextmanager
    def _waiting(self, child: "subprocess.Popen[bytes]") -> Iterator[None]:
        """Make a child known to `end_children` while this thread waits for it."""
        me = threading.current_thread()
        with self._lock:
            self._children[me] = child
            if me in self._ending:
                _kill_session(child)
        try:
            yield
        finally:
            with self._lock:
                del self._children[me]

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | bytes | None = None,
        timeout_s: float | None = None,
        output_file: str | None = None,
        pass_fds: Sequence[int] = (),
    ) -> RunResult:
        """Run a command to its end.

        Args:
            argv: program and arguments; no shell is involved.
            env: the whole environment; None means only a safe ``PATH`` and ``LC_ALL``.
            cwd: working directory, ``/`` if None.
            stdin: text for its standard input; without it, /dev/null.
            timeout_s: after this its whole session is killed.
            output_file: append both outputs there instead of returning them.
            pass_fds: open file descriptors that the child inherits.

        Raises:
            CommandError: the program cannot be started.
        """
        full_env = _SAFE_ENV if env is None else dict(env)
        data = stdin.encode() if isinstance(stdin, str) else stdin
        out = open(output_file, "ab") if output_file else None  # noqa: SIM115
        try:
            child = subprocess.Popen(
                list(argv),
                env=full_env,
                cwd=cwd or "/",
                stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
                stdout=out or subprocess.PIPE,
                stderr=out or subprocess.PIPE,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        except OSError as err:
            raise errors.CommandError(f"{argv[0]}: cannot be run: {err}") from err
        finally:
            if out is not None:
                out.close()
        with self._waiting(child):
            return _collect(child, tuple(argv), data, timeout_s)

    def run_bounded(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        max_output: int,
        env: Mapping[str, str] | None = None,
    ) -> RunResult:
        """Run a command that is not trusted to end well.

        Args:
            argv: program and arguments.
            timeout_s: after this its whole session is killed.
            max_output: bytes; a child that prints more is killed. Its remaining
                descendants are killed when it ends.
            env: the whole environment; None means only a safe ``PATH`` and ``LC_ALL``.

        Raises:
            CommandError: the program cannot be started.
        """
        child = _start_piped(argv, _SAFE_ENV if env is None else env)
        with self._waiting(child):
            return _collect_bounded(child, tuple(argv), timeout_s, max_output)

    def run_trimmed(
        self, argv: Sequence[str], *, env: Mapping[str, str], max_output: int
    ) -> RunResult:
        """Run a command to its end and keep the beginning and end of its output.

        Args:
            argv: program and arguments.
            env: the whole environment.
            max_output: bytes that are kept of each output; a line in place of the
                others has their number.

        Raises:
            CommandError: the program cannot be started.
        """
        child = _start_piped(argv, env)
        outputs = [stream for stream in (child.stdout, child.stderr) if stream]
        kept = {stream: Trimmed(max_output) for stream in outputs}
        with self._waiting(child), child, selectors.DefaultSelector() as ready:
            for stream in outputs:
                ready.register(stream, selectors.EVENT_READ, kept[stream])
            while ready.get_map():
                for key, _mask in ready.select():
                    if data := os.read(key.fd, _READ_BYTES):
                        key.data.add(data)
                    else:
                        ready.unregister(key.fileobj)
        stdout, stderr = (kept[stream].content() for stream in outputs)
        return _result(tuple(argv), child.returncode, stdout, stderr, _Ended())


def _kill_session(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _start_piped(
    argv: Sequence[str], env: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            list(argv),
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as err:
        raise errors.CommandError(f"{argv[0]}: cannot be run: {err}") from err


class Trimmed:
    """Beginning and end of an output; holds at most 3/2 of the limit, in bytes."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    @property
    def size(self) -> int:
        """Return the number of bytes that are held."""
        return len(self._head) + len(self._tail)

    def add(self, data: bytes) -> None:
        """Append to the output; drops bytes of its middle in constant time per byte."""
        space = self._half - len(self._head)
        self._head += data[:space]
        self._tail += data[space:]
        if len(self._tail) > 2 * self._half:
            self._drop()

    def content(self) -> bytes:
        """Return the output, with a line in place of the bytes that were dropped."""
        if len(self._tail) > self._half:
            self._drop()
        if not self._dropped:
            return bytes(self._head + self._tail)
        note = f"\n[{self._dropped} bytes of output left out]\n"
        return bytes(self._head) + note.encode() + bytes(self._tail)

    def _drop(self) -> None:
        excess = len(self._tail) - self._half
        del self._tail[:excess]
        self._dropped += excess


def _collect(
    child: "subprocess.Popen[bytes]",
    argv: tuple[str, ...],
    data: bytes | None,
    timeout_s: float | None,
) -> RunResult:
    timed_out = False
    try:
        stdout, stderr = child.communicate(data, timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(child.pid, signal.SIGKILL)
        stdout, stderr = child.communicate()
    ended = _Ended(timed_out=timed_out)
    return _result(argv, child.returncode, stdout or b"", stderr or b"", ended)


@dataclasses.dataclass(frozen=True)
class _Ended:
    """The reason for killing a child."""

    timed_out: bool = False
    too_long: bool = False


def _result(
    argv: tuple[str, ...], code: int, stdout: bytes, stderr: bytes, ended: _Ended
) -> RunResult:
    return RunResult(
        argv=argv,
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
        timed_out=ended.timed_out,
        too_long=ended.too_long,
    )


def _collect_bounded(
    child: "subprocess.Popen[bytes]",
    argv: tuple[str, ...],
    timeout_s: float,
    max_output: int,
) -> RunResult:
    """Read output until the child ends, even if others hold the outputs open."""
    deadline = time.monotonic() + timeout_s
    outputs = [stream for stream in (child.stdout, child.stderr) if stream]
    printed = {stream: bytearray() for stream in outputs}
    done = os.pidfd_open(child.pid)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(done, selectors.EVENT_READ)
            for stream in outputs:
                os.set_blocking(stream.fileno(), False)
                ready.register(stream, selectors.EVENT_READ)
            ended = _read(ready, done, printed, deadline, max_output)
    finally:
        os.close(done)
        # The process group is the child's own; its members may have ended already.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        code = child.wait()
        for stream in outputs:
            stream.close()
    stdout, stderr = (bytes(printed[stream][:max_output]) for stream in outputs)
    return _result(argv, code, stdout, stderr, ended)


def _read(
    ready: selectors.BaseSelector,
    done: int,
    printed: "dict[IO[bytes], bytearray]",
    deadline: float,
    max_output: int,
) -> _Ended:
    """Read until the child ended, its time limit passed, or it printed too much."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return _Ended(timed_out=True)
        events = ready.select(left)
        for key, _mask in events:
            if key.fd != done:
                _take(ready, key, printed, max_output)
        if any(len(text) > max_output for text in printed.values()):
            return _Ended(too_long=True)
        # Read all output that was written before the end, then report the end.
        if len(events) == 1 and events[0][0].fd == done:
            return _Ended()


def _take(
    ready: selectors.BaseSelector,
    key: selectors.SelectorKey,
    printed: "dict[IO[bytes], bytearray]",
    max_output: int,
) -> None:
    data = os.read(key.fd, min(max_output + 1, _READ_BYTES))
    printed[cast("IO[bytes]", key.fileobj)] += data
    if not data:
        ready.unregister(key.fileobj)
