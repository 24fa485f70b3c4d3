"""The process door: children with argument lists, clean environments, time limits."""

import dataclasses
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from ganeti import errors

#: Search path of children: system directories only.
SAFE_PATH = "/sbin:/bin:/usr/sbin:/usr/bin"


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a child ended.

    Attributes:
        argv: the command.
        code: exit code; None when a signal ended it.
        signal: number of the signal, None otherwise.
        stdout: its output, decoded.
        stderr: its error output, decoded; empty when merged into stdout.
        timed_out: whether it was killed because its time ran out.
    """

    argv: tuple[str, ...]
    code: int | None
    signal: int | None
    stdout: str
    stderr: str
    timed_out: bool = False

    @property
    def failed(self) -> bool:
        """Tell whether it did anything but exit with 0."""
        return self.code != 0

    @property
    def reason(self) -> str:
        """Return how it ended, for messages."""
        if self.timed_out:
            return "did not end in time and was killed"
        if self.signal is not None:
            return f"was ended by signal {self.signal}"
        return f"exited with code {self.code}"

    @property
    def output(self) -> str:
        """Return output and error output together."""
        return self.stdout + self.stderr


class Runner(Protocol):
    """Starts children on this machine."""

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


class SystemRunner:
    """Runs real children, each in its own session so that its children die too."""

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
            stdin: text for its standard input, else it gets /dev/null.
            timeout_s: after this its whole session is killed.
            output_file: append both outputs there instead of returning them.
            pass_fds: open files that the child gets under their numbers.

        Raises:
            CommandError: the program cannot be started.
        """
        full_env = {"PATH": SAFE_PATH, "LC_ALL": "C"} if env is None else dict(env)
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
        return _collect(child, tuple(argv), data, timeout_s)


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
    code = child.returncode
    return RunResult(
        argv=argv,
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=(stdout or b"").decode(errors="replace"),
        stderr=(stderr or b"").decode(errors="replace"),
        timed_out=timed_out,
    )
