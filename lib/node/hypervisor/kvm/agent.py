"""Client of the agent in a guest: its addresses, and frozen file systems.

The protocol is that of the QEMU guest agent: lines of JSON on a serial channel. The
guest may answer slowly, wrongly, endlessly or never: each exchange has a time limit and
each answer a size limit. The emulator serves one client of the channel at a time.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import time
from types import TracebackType
from typing import Any, Final, Self

from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.base.net import guest_addresses
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import files
from ganeti.node.hypervisor.kvm.files import Files

#: Seconds for an answer, and for freezing, which writes all buffers of the guest.
ANSWER_S: Final = 2.0
FREEZE_S: Final = 30.0
_MAX_ANSWER: Final = 256 * 1024
_CHUNK: Final = 4096
#: Byte that begins an answer to a synchronisation, after which nothing old follows.
_SENTINEL: Final = b"\xff"
#: Name of the program that keeps a guest frozen, and seconds for its end.
HOLDER: Final = "guest-freeze"
_END_S: Final = 20.0
_POLL_S: Final = 0.05


class Agent:
    """One session; a context manager.

    Args:
        path: path of the channel's socket.
        name: name of the guest, for messages.
        answer_s: seconds for the synchronisation.
    """

    def __init__(self, path: str, name: str, answer_s: float = ANSWER_S) -> None:
        self._path = path
        self._name = name
        self._answer_s = answer_s
        self._rest = b""

    def __enter__(self) -> Self:
        """Connect and synchronise.

        Raises:
            HypervisorError: no agent answers.
        """
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(self._answer_s)
            self._socket.connect(self._path)
            self._synchronise()
        except OSError as err:
            self._socket.close()
            raise self._failed(f"cannot connect: {err}") from err
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect."""
        self._socket.close()

    def _synchronise(self) -> None:
        """Skip what earlier sessions left in the channel."""
        number = secrets.randbelow(1 << 31)
        arguments = {"id": number}
        end = time.monotonic() + self._answer_s
        self._send("guest-sync-delimited", arguments, end, prefix=_SENTINEL)
        while True:
            self._read_to(_SENTINEL, end)
            if self._answer(end) == number:
                return

    def execute(self, command: str, answer_s: float | None = None) -> Any:
        """Run a command and return its answer, of any kind.

        Raises:
            HypervisorError: the agent refused, or did not answer in time.
        """
        end = time.monotonic() + (answer_s or self._answer_s)
        self._send(command, None, end)
        return self._answer(end)

    def _send(
        self, command: str, arguments: Any, end: float, *, prefix: bytes = b""
    ) -> None:
        message = {"execute": command}
        if arguments is not None:
            message["arguments"] = arguments
        self._wait_until(end)
        try:
            self._socket.sendall(prefix + json.dumps(message).encode() + b"\n")
        except OSError as err:
            raise self._failed(f"{command}: {err}") from err

    def _answer(self, end: float) -> Any:
        line = self._read_to(b"\n", end)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError) as err:
            raise self._failed("its answer is not JSON") from err
        if not isinstance(answer, dict) or "return" not in answer:
            problem = answer.get("error") if isinstance(answer, dict) else None
            text = problem.get("desc") if isinstance(problem, dict) else None
            raise self._failed(f"it refused: {str(text)[:200]!r}")
        return answer["return"]

    def _read_to(self, delimiter: bytes, end: float) -> bytes:
        """Return the data before a delimiter; the rest is kept."""
        while delimiter not in self._rest:
            if len(self._rest) > _MAX_ANSWER:
                raise self._failed(f"its answer has more than {_MAX_ANSWER} bytes")
            self._wait_until(end)
            try:
                data = self._socket.recv(_CHUNK)
            except OSError as err:
                raise self._failed(f"no answer: {err}") from err
            if not data:
                raise self._failed("the emulator closed the connection")
            self._rest += data
        line, _, self._rest = self._rest.partition(delimiter)
        return line

    def _wait_until(self, end: float) -> None:
        left = end - time.monotonic()
        if left <= 0:
            raise self._failed("no answer in time")
        # The rest of the whole limit: a guest that sends single bytes must not lengthen
        # it.
        self._socket.settimeout(left)

    def _failed(self, text: str) -> errors.HypervisorError:
        return errors.HypervisorError(f"instance {self._name}: guest agent: {text}")


def addresses(guest: Files) -> guest_addresses.Rows:
    """Return the addresses that a guest reports.

    Raises:
        HypervisorError: no agent answers.
    """
    with Agent(guest.control("qga"), guest.name) as agent:
        answer = agent.execute("guest-network-get-interfaces")
    return guest_addresses.from_agent(answer)


# Frozen file systems


def marker(guest: Files) -> str:
    """Return the file that exists while a guest is frozen: the holder's process id."""
    return guest.marker("frozen")


def freeze_now(session: Agent, name: str) -> None:
    """Freeze a guest.

    Raises:
        HypervisorError: it refused, or has no file system that can be frozen.
    """
    count = session.execute("guest-fsfreeze-freeze", FREEZE_S)
    if type(count) is not int or count < 1:
        raise errors.HypervisorError(
            f"instance {name}: guest agent: froze no file system"
        )


def freeze(effects: NodeEffects, guest: Files, limit_s: float) -> None:
    """Freeze the file systems of a guest for a limited time.

    A process of its own keeps them frozen: whatever happens to the caller, to the node
    daemon or to the master, it thaws them after the limit.

    Raises:
        HypervisorError: the guest is frozen already, or refused; it is not frozen then.
    """
    thaw_abandoned(guest)
    program = f"{effects.paths.tools_dir}/{HOLDER}"
    command = [program, guest.control("qga"), marker(guest), guest.name]
    try:
        result = effects.process.run(
            [*command, f"{limit_s:g}"], timeout_s=2 * FREEZE_S + limit_s
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(f"instance {guest.name}: {err}") from err
    if result.failed:
        raise errors.HypervisorError(
            result.stderr.strip()[-500:] or f"{HOLDER}: {result.reason}"
        )


def thaw(effects: NodeEffects, guest: Files) -> bool:
    """Thaw the file systems of a guest; return whether they were frozen until now.

    Raises:
        HypervisorError: they are still frozen.
    """
    path = marker(guest)
    pid = _holder(path)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        end = effects.clock.monotonic() + _END_S
        while _holder(path) and effects.clock.monotonic() < end:
            effects.sleep(_POLL_S)
        if os.path.exists(path):
            raise errors.HypervisorError(
                f"instance {guest.name}: its file systems are still frozen; a reboot"
                " thaws them"
            )
        return True
    return thaw_abandoned(guest, FREEZE_S)


def thaw_abandoned(guest: Files, answer_s: float = ANSWER_S) -> bool:
    """Thaw a guest whose holder was killed; return whether there was one.

    Raises:
        HypervisorError: the agent did not thaw it.
    """
    path = marker(guest)
    if not os.path.exists(path) or _holder(path) is not None:
        return False
    with Agent(guest.control("qga"), guest.name) as agent:
        # Before the marker goes: without it nobody would try again.
        agent.execute("guest-fsfreeze-thaw", answer_s)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return True


def _holder(path: str) -> int | None:
    """Return the process that keeps a guest frozen, None if there is none."""
    pid = pidfile.pid_in(path)
    # The number may be that of another process by now.
    return pid if pid and path in files.command_line(pid) else None
