"""Child processes with argument lists, clean environments and time limits."""

import contextlib
import dataclasses
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, Final, Protocol

from ganeti.base import errors

#: Search path of children: system directories only.
SAFE_PATH = "/sbin:/bin:/usr/sbin:/usr/bin"
_SAFE_ENV = {"PATH": SAFE_PATH, "LC_ALL": "C"}
_READ_BYTES = 1 << 18
#: Bytes that the kernel takes of one argument or variable, with the zero that ends it
#: (MAX_ARG_STRLEN), and of all of them, with a pointer to each, at the usual limit of
#: the stack of 8 MiB (execve(2)). Half of that remains for the arguments.
MAX_STRING: Final = 128 * 1024
MAX_STRINGS: Final = 2 * 1024 * 1024
_MAX_VARIABLES: Final = MAX_STRINGS // 2
_POINTER: Final = 8
#: Seconds between looks at the size of a file that a command writes.
_FILE_CHECK_S = 0.5


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
        printed: bytes that it had printed to one output then.
        max_output: bytes that it could print.
    """

    argv: tuple[str, ...]
    code: int | None
    signal: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    too_long: bool = False
    printed: int = 0
    max_output: int = 0

    @property
    def failed(self) -> bool:
        """Return whether it ended other than with exit code 0, or passed a limit.

        One that has printed too much may have ended before it could be killed.
        """
        return self.code != 0 or self.timed_out or self.too_long

    @property
    def reason(self) -> str:
        """Return the kind of its end, for messages."""
        if self.timed_out:
            return "did not end in time and was killed"
        if self.too_long:
            return (
                f"printed too much (wanted at most {self.max_output} bytes, found"
                f" {self.printed} or more) and was killed"
            )
        if self.signal is not None:
            return f"was ended by signal {self.signal}"
        return f"exited with code {self.code}"

    @property
    def output(self) -> str:
        """Return output and error output, concatenated."""
        return self.stdout + self.stderr


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of commands that run in parallel.

    Attributes:
        timeout_s: of each command, from its start.
        max_output: bytes that each may print to one of its outputs.
        at_once: most commands that run at the same time.
        pause_s: between the starts of two commands.
        stdin: text for the standard input of each; without it, /dev/null.
        held: descriptors, one for each command, that it and its children keep open
            even if this process ends; empty for none.
    """

    timeout_s: float
    max_output: int
    at_once: int = 1
    pause_s: float = 0.0
    stdin: str | None = dataclasses.field(default=None, repr=False)
    held: Sequence[int] = ()


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
        stdin: str | None = None,
    ) -> RunResult:
        """Run a command that is not trusted to end well."""

    def run_many(
        self,
        commands: Sequence[Sequence[str]],
        *,
        limits: "Limits",
        env: Mapping[str, str] | None = None,
    ) -> "list[RunResult | errors.CommandError]":
        """Run commands in parallel that are not trusted to end well."""

    def run_trimmed(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        max_output: int,
        cwd: str | None = None,
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
        self._children: dict[threading.Thread, list[subprocess.Popen[bytes]]] = {}
        self._ending: set[threading.Thread] = set()

    def end_children(self, thread: threading.Thread, end: bool) -> None:
        """Kill the sessions of the children that a thread waits for, and later ones.

        Args:
            thread: has called one of the other methods, or will.
            end: false allows the thread to run children again.
        """
        with self._lock:
            if not end:
                self._ending.discard(thread)
                return
            self._ending.add(thread)
            for child in self._children.get(thread, ()):
                if child.returncode is None:
                    _kill_session(child)

    @contextlib.contextmanager
    def _waiting(self, child: "subprocess.Popen[bytes]") -> Iterator[None]:
        """Make a child known to `end_children` while this thread waits for it."""
        me = threading.current_thread()
        with self._lock:
            self._children.setdefault(me, []).append(child)
            if me in self._ending:
                _kill_session(child)
        try:
            yield
        finally:
            with self._lock:
                self._children[me].remove(child)
                if not self._children[me]:
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
            raise _cannot_run(argv, full_env, err) from err
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
        stdin: str | None = None,
    ) -> RunResult:
        """Run a command that is not trusted to end well.

        Args:
            argv: program and arguments.
            timeout_s: after this its whole session is killed.
            max_output: bytes; a child that prints more is killed. Its remaining
                descendants are killed when it ends.
            env: the whole environment; None means only a safe ``PATH`` and ``LC_ALL``.
            stdin: text for its standard input; without it, /dev/null.

        Raises:
            CommandError: the program cannot be started.
        """
        limits = Limits(timeout_s, max_output, stdin=stdin)
        (result,) = self.run_many([argv], limits=limits, env=env)
        if isinstance(result, errors.CommandError):
            raise result
        return result

    def run_many(
        self,
        commands: Sequence[Sequence[str]],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
    ) -> "list[RunResult | errors.CommandError]":
        """Run commands in parallel that are not trusted to end well.

        Args:
            commands: program and arguments each.
            limits: a command that exceeds them is killed with its whole session. The
                remaining descendants of each are killed when it ends.
            env: the whole environment; None means only a safe ``PATH`` and ``LC_ALL``.

        Returns:
            A result per command, in their order, or why it cannot be started.
        """
        full_env = _SAFE_ENV if env is None else env
        return _Crowd(self._waiting, commands, limits, full_env).run()

    def run_trimmed(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        max_output: int,
        cwd: str | None = None,
    ) -> RunResult:
        """Run a command to its end and keep the beginning and end of its output.

        Args:
            argv: program and arguments.
            env: the whole environment.
            max_output: bytes that are kept of each output; a line in place of the
                others has their number.
            cwd: working directory, ``/`` if None.

        Raises:
            CommandError: the program cannot be started.
        """
        child = _start_piped(argv, env, cwd=cwd)
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


@contextlib.contextmanager
def kept_short(path: str, limit: int) -> Iterator[None]:
    """Keep a file short to which programs append that run in the block.

    Args:
        path: of the file.
        limit: bytes; of a longer file only the last are kept.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_FILE_CHECK_S):
            shorten(path, limit)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        shorten(path, limit)


def shorten(path: str, limit: int) -> None:
    """Keep only the last quarter of a file that is longer than its limit in bytes.

    Programs that append to it go on. Their writes at this moment may be lost.
    """
    with contextlib.suppress(OSError), open(path, "r+b", buffering=0) as log:
        size = os.fstat(log.fileno()).st_size
        if size <= limit:
            return
        kept = os.pread(log.fileno(), limit // 4, size - limit // 4)
        note = f"[{size - len(kept)} bytes of output left out]\n"
        log.truncate(0)
        # Appended, as the writes of the program.
        with open(path, "ab", buffering=0) as end:
            end.write(note.encode() + kept)


def _kill_session(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _start_piped(
    argv: Sequence[str],
    env: Mapping[str, str],
    stdin: str | None = None,
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    with contextlib.ExitStack() as stack:
        source = subprocess.DEVNULL
        if stdin is not None:
            # In memory: no pipe that a child may fill, no file that is left.
            source = os.memfd_create("stdin")
            stack.callback(os.close, source)
            os.write(source, stdin.encode())
            os.lseek(source, 0, os.SEEK_SET)
        try:
            return subprocess.Popen(
                list(argv),
                env=env,
                cwd=cwd or "/",
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        except OSError as err:
            raise _cannot_run(argv, env, err) from err


def fitting(env: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return the variables of an environment that a program can get.

    Those that are too long, such as thousands of tags, are left out, and the longest
    ones until the rest fits together. The variable ``LEFT_OUT`` has their names.

    Args:
        env: the whole environment.
        prefix: of the name of that variable.
    """
    sizes = {name: _size(name, value) for name, value in env.items()}
    left_out = [name for name, size in sizes.items() if size > MAX_STRING]
    total = sum(sizes.values()) - sum(sizes[name] for name in left_out)
    total += _POINTER * len(sizes)
    for name in sorted(sizes.keys() - set(left_out), key=lambda each: -sizes[each]):
        if total <= _MAX_VARIABLES:
            break
        left_out.append(name)
        total -= sizes[name]
    if not left_out:
        return dict(env)
    kept = {name: value for name, value in env.items() if name not in set(left_out)}
    names = " ".join(sorted(left_out))
    return {**kept, f"{prefix}LEFT_OUT": names[: MAX_STRING - 1024]}


def _size(name: str, value: str) -> int:
    """Return the bytes of a variable: with an equals sign and the zero at its end."""
    return len(os.fsencode(name)) + len(os.fsencode(value)) + 2


def _cannot_run(
    argv: Sequence[str], env: Mapping[str, str] | None, err: OSError
) -> errors.CommandError:
    """Return the error of a program that was not started, with the string at fault."""
    why = str(err)
    if err.errno == errno.E2BIG:
        sizes = {
            f"argument {index}": len(os.fsencode(each)) + 1
            for index, each in enumerate(argv)
        }
        sizes |= {
            f"variable {name}": _size(name, value)
            for name, value in (env or {}).items()
        }
        longest = max(sizes, key=lambda each: sizes[each])
        why = (
            f"its arguments and variables have {sum(sizes.values())} bytes, {longest}"
            f" alone {sizes[longest]}; the system takes {MAX_STRINGS}, and {MAX_STRING}"
            " of one"
        )
    return errors.CommandError(f"{argv[0]}: cannot be run: {why}")


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
    printed: int = 0
    max_output: int = 0


def _result(
    argv: tuple[str, ...], code: int, stdout: bytes, stderr: bytes, ended: _Ended
) -> RunResult:
    return RunResult(
        argv=argv,
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
        **dataclasses.asdict(ended),
    )


class _Bounded:
    """A running command with limits; its outputs are read as they come."""

    def __init__(
        self, index: int, argv: tuple[str, ...], env: Mapping[str, str], limits: Limits
    ) -> None:
        self.index = index
        self.argv = argv
        held = limits.held[index : index + 1]
        self.child = _start_piped(argv, env, limits.stdin, pass_fds=held)
        self.deadline = time.monotonic() + limits.timeout_s
        self._max_output = limits.max_output
        self._outputs = [s for s in (self.child.stdout, self.child.stderr) if s]
        self._printed = {stream: bytearray() for stream in self._outputs}
        self._open = set(self._outputs)
        self.done = os.pidfd_open(self.child.pid)

    def register(self, ready: selectors.BaseSelector) -> None:
        """Wait for outputs and the end."""
        ready.register(self.done, selectors.EVENT_READ, (self, None))
        for stream in self._outputs:
            os.set_blocking(stream.fileno(), False)
            ready.register(stream, selectors.EVENT_READ, (self, stream))

    def take(self, ready: selectors.BaseSelector, stream: IO[bytes]) -> int:
        """Read an output; return its bytes if it is too long, else 0."""
        data = os.read(stream.fileno(), min(self._max_output + 1, _READ_BYTES))
        self._printed[stream] += data
        if not data:
            ready.unregister(stream)
            self._open.discard(stream)
        printed = len(self._printed[stream])
        return printed if printed > self._max_output else 0

    def finish(self, ready: selectors.BaseSelector, ended: _Ended) -> RunResult:
        """Kill the remains of the session; return the result."""
        # The process group is the child's own; its members may have ended already.
        _kill_session(self.child)
        code = self.child.wait()
        ready.unregister(self.done)
        os.close(self.done)
        for stream in self._outputs:
            if stream in self._open:
                ready.unregister(stream)
            stream.close()
        stdout, stderr = (
            bytes(self._printed[stream][: self._max_output]) for stream in self._outputs
        )
        return _result(self.argv, code, stdout, stderr, ended)


class _Crowd:
    """Commands that run in parallel; see `SystemRunner.run_many`."""

    def __init__(
        self,
        waiting: "Callable[[subprocess.Popen[bytes]], AbstractContextManager[None]]",
        commands: Sequence[Sequence[str]],
        limits: Limits,
        env: Mapping[str, str],
    ) -> None:
        self._waiting = waiting
        self._limits = limits
        self._env = env
        self._left = list(enumerate(map(tuple, commands)))[::-1]
        self._results: dict[int, RunResult | errors.CommandError] = {}
        self._running: dict[_Bounded, contextlib.ExitStack] = {}
        self._next_start = 0.0

    def run(self) -> "list[RunResult | errors.CommandError]":
        """Start all, wait for all; end all if this is interrupted."""
        with selectors.DefaultSelector() as ready:
            try:
                while self._left or self._running:
                    self._start_some(ready)
                    if self._left or self._running:
                        self._wait(ready)
            finally:
                for running in list(self._running):
                    self._end(ready, running, _Ended())
        return [self._results[index] for index in sorted(self._results)]

    def _may_start(self) -> bool:
        return bool(self._left) and len(self._running) < self._limits.at_once

    def _start_some(self, ready: selectors.BaseSelector) -> None:
        while self._may_start() and time.monotonic() >= self._next_start:
            index, argv = self._left.pop()
            self._next_start = time.monotonic() + self._limits.pause_s
            try:
                running = _Bounded(index, argv, self._env, self._limits)
            except errors.CommandError as err:
                self._results[index] = err
                continue
            stack = self._running[running] = contextlib.ExitStack()
            stack.enter_context(self._waiting(running.child))
            running.register(ready)

    def _wait(self, ready: selectors.BaseSelector) -> None:
        """Wait for the next event, and handle what happened."""
        times = [running.deadline for running in self._running]
        if self._may_start():
            times.append(self._next_start)
        events = ready.select(max(0.0, min(times) - time.monotonic()))
        printed, ended = set(), set()
        for key, _mask in events:
            running, stream = key.data
            if stream is None:
                ended.add(running)
            elif running in self._running:
                printed.add(running)
                if printed_bytes := running.take(ready, stream):
                    limit = self._limits.max_output
                    ended_by = _Ended(False, True, printed_bytes, limit)
                    self._end(ready, running, ended_by)
        # Read all output that was written before the end, then report the end.
        for running in (ended - printed) & self._running.keys():
            self._end(ready, running, _Ended())
        now = time.monotonic()
        for running in [r for r in self._running if r.deadline <= now]:
            self._end(ready, running, _Ended(timed_out=True))

    def _end(
        self, ready: selectors.BaseSelector, running: _Bounded, ended: _Ended
    ) -> None:
        with self._running.pop(running):
            self._results[running.index] = running.finish(ready, ended)
