"""Processes of a node, and signals to them.

In simple mode a process belongs to a node if its environment or an argument contains
the node's root, or if its parent belongs to the node; in isolated mode if it is in the
node's PID namespace. No records are kept, so no process can be missed.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ganeti.base.pathutils import ROOTDIR_ENV

#: Pause in seconds between checks for killed processes; the kernel needs a moment to
#: remove them.
_POLL_S: Final = 0.01
#: Position of the number of threads in /proc/PID/stat, counted from the state.
_THREADS: Final = 17


class Process(NamedTuple):
    """One process of the machine."""

    pid: int
    parent: int
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the program; for Ganeti's daemons the daemon's name."""
        for argument in self.arguments[:3]:
            base = os.path.basename(argument.split(" ", 1)[0].rstrip(":"))
            if base and not base.startswith(("python", "-")):
                return base
        return self.arguments[0] if self.arguments else "?"


def all_processes() -> Iterator[Process]:
    """Yield the processes of this machine that can be inspected."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = _read(f"/proc/{entry}/stat").rpartition(b")")[2].split()
            # The first thread of a killed process may be gone while others still
            # hold its files and locks.
            if status[0] in (b"Z", b"X") and int(status[_THREADS]) <= 1:
                continue
            raw = _read(f"/proc/{entry}/cmdline").decode(errors="replace")
            arguments = tuple(part for part in raw.split("\0") if part)
            yield Process(int(entry), int(status[1]), arguments)


def of_root(root: str) -> list[Process]:
    """Return the processes of a simple node, without this process and its parents."""
    marker = f"{ROOTDIR_ENV}={root}".encode()
    return _select(lambda process: _names_root(process, root, marker))


def _names_root(process: Process, root: str, marker: bytes) -> bool:
    if any(f"{root}/" in argument for argument in process.arguments):
        return True
    with contextlib.suppress(OSError):
        return marker in _read(f"/proc/{process.pid}/environ").split(b"\0")
    return False


def of_namespace(namespace: str) -> list[Process]:
    """Return the processes of a PID namespace, given as its /proc link text."""

    def is_inside(process: Process) -> bool:
        return pid_namespace(process.pid) == namespace

    return _select(is_inside)


def pid_namespace(pid: int) -> str:
    """Return the identifier of a process's PID namespace, empty if it is gone."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _select(belongs: Callable[[Process], bool]) -> list[Process]:
    everything = {process.pid: process for process in all_processes()}
    spared = _ancestors(everything, os.getpid())
    chosen = {pid for pid, process in everything.items() if belongs(process)} - spared
    growing = True
    while growing:
        more = {
            pid
            for pid, process in everything.items()
            if process.parent in chosen and pid not in chosen and pid not in spared
        }
        chosen |= more
        growing = bool(more)
    return [everything[pid] for pid in sorted(chosen)]


def _ancestors(everything: dict[int, Process], pid: int) -> set[int]:
    ancestors = set()
    while pid in everything and pid not in ancestors:
        ancestors.add(pid)
        pid = everything[pid].parent
    return ancestors


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def send(processes: list[Process], number: signal.Signals) -> None:
    """Send a signal to processes; skip those that are gone."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def kill(processes: list[Process], timeout_s: float = 20.0) -> None:
    """Kill processes and wait until the kernel has released their resources.

    Raises:
        TimeoutError: a process does not die.
    """
    with contextlib.ExitStack() as stack:
        handles = []
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                handles.append((process, os.pidfd_open(process.pid)))
                stack.callback(os.close, handles[-1][1])
        for _process, handle in handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        deadline = time.monotonic() + timeout_s
        for process, handle in handles:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([handle], [], [], left)[0]:
                raise TimeoutError(
                    f"process {process.pid} ({process.name}) was killed but does"
                    " not end"
                )


def kill_all(find: Callable[[], list[Process]], timeout_s: float = 20.0) -> int:
    """Kill processes until none is left; return their number.

    Processes that start at the same time are killed in the next round.

    Raises:
        TimeoutError: some processes do not die.
    """
    deadline = time.monotonic() + timeout_s
    seen: set[int] = set()
    while processes := find():
        fresh = [process for process in processes if process.pid not in seen]
        send(fresh or processes, signal.SIGKILL)
        seen |= {process.pid for process in processes}
        if time.monotonic() > deadline:
            names = ", ".join(
                f"{process.name} ({process.pid})" for process in processes
            )
            raise TimeoutError(f"these processes were killed but do not end: {names}")
        time.sleep(_POLL_S)
    return len(seen)
