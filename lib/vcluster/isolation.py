"""Isolated nodes: namespaces held by one small process a node.

The holder is the first process of the node's PID namespace; when it dies, the kernel
ends everything else there, as a power cut does.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from ganeti import errors
from ganeti.utils import files
from ganeti.vcluster import processes
from ganeti.vcluster.layout import Layout, Node

#: What each node has of its own at the standard places; the rest it shares with
#: this machine.
BOUND: Final = (
    "/etc/default",
    "/etc/ganeti",
    "/etc/hosts",
    "/etc/ssh",
    "/root/.ssh",
    "/srv/ganeti",
    "/var/backups",
    "/var/lib/ganeti",
    "/var/lock",
    "/var/log/ganeti",
    "/var/run/ganeti",
)
_MS_BIND: Final = 4096
_READY: Final = b"ready\n"
HOLD_COMMAND: Final = "hold-namespaces"


def start(layout: Layout, node: Node) -> None:
    """Make a node's namespaces unless they are there.

    Raises:
        OpExecError: the kernel or our rights do not allow it.
    """
    from ganeti.vcluster import network

    if holder(layout, node) is not None:
        return
    for path in BOUND:
        _make_mount_point(path)
    log = os.path.join(layout.directory, "state", f"{node.name}.holder.log")
    program = os.path.join(layout.bindir, "vcluster")
    with open(log, "ab") as errors_to:
        child = subprocess.Popen(
            [
                *("unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork"),
                *("--kill-child", "--mount-proc", "--propagation", "private"),
                *(sys.executable, "-I", program, "-C", layout.directory),
                *(HOLD_COMMAND, node.name),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors_to,
            start_new_session=True,
            cwd="/",
        )
        stream = child.stdout
        ready = stream.readline() if stream is not None else b""
    if stream is not None:
        stream.close()
    if ready != _READY:
        child.wait()
        text = files.read_file(log).decode(errors="replace").strip().splitlines()
        raise errors.OpExecError(
            f"node {node.short}: its namespaces cannot be made:"
            f" {text[-1] if text else 'see ' + log}"
        )
    pid = _only_child(child.pid)
    files.write_file(_pid_file(layout, node), f"{pid}\n", mode=0o644)
    network.plug_in(layout, node, pid)


def _make_mount_point(path: str) -> None:
    real = os.path.realpath(path)
    if not os.path.exists(real):
        os.makedirs(real, mode=0o755, exist_ok=True)


def _only_child(pid: int) -> int:
    for process in processes.all_processes():
        if process.parent == pid:
            return process.pid
    raise errors.OpExecError(f"process {pid}: has no child although it said so")


def _pid_file(layout: Layout, node: Node) -> str:
    return os.path.join(layout.directory, "state", f"{node.name}.holder.pid")


def holder(layout: Layout, node: Node) -> int | None:
    """Return the process that holds a node's namespaces, None when it is down."""
    try:
        pid = int(files.read_file(_pid_file(layout, node)))
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            words = stream.read().split(b"\0")
    except (OSError, ValueError):
        return None
    is_ours = HOLD_COMMAND.encode() in words and node.name.encode() in words
    return pid if is_ours else None


def require_holder(layout: Layout, node: Node) -> int:
    """Return the process that holds a node's namespaces.

    Raises:
        OpPrereqError: the node is down.
    """
    pid = holder(layout, node)
    if pid is None:
        raise errors.OpPrereqError(f"node {node.short}: is down", "wrong_state")
    return pid


def forget(layout: Layout, node: Node) -> None:
    """Drop the record of a node whose namespaces are gone."""
    files.remove_file(_pid_file(layout, node))


def enter(layout: Layout, node: Node, command: Sequence[str]) -> list[str]:
    """Return the arguments that run a command inside a node."""
    pid = require_holder(layout, node)
    enter_all = ("nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p")
    return [*enter_all, "--wd=/", "--", *command]


def processes_of(layout: Layout, node: Node) -> list[processes.Process]:
    """Return the processes inside a node, its holder among them."""
    pid = holder(layout, node)
    if pid is None:
        return []
    return processes.of_namespace(processes.pid_namespace(pid))


def hold(layout: Layout, node: Node) -> int:
    """Be a node's first process: arrange its file system, then adopt orphans.

    Returns when it is told to end.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for path in BOUND:
        _bind(libc, layout.host_path(node, path), os.path.realpath(path))
    _disarm_reset(libc, layout, node)
    socket.sethostname(node.name)
    waited = [signal.SIGCHLD, signal.SIGTERM]
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    os.write(1, _READY)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    while signal.sigwait(waited) != signal.SIGTERM:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
    return 0


def reset_file(layout: Layout, node: Node) -> str:
    """Return the file that a node writes to when it wants to be reset."""
    return os.path.join(layout.directory, "state", f"{node.name}.sysrq-trigger")


def _disarm_reset(libc: ctypes.CDLL, layout: Layout, node: Node) -> None:
    """Put plain files before the kernel's reset switch, which is the machine's own.

    Else a node that is power cycled would reset this machine with all nodes on it.
    """
    enable = os.path.join(layout.directory, "state", f"{node.name}.sysrq")
    for path, target in (
        (reset_file(layout, node), "/proc/sysrq-trigger"),
        (enable, "/proc/sys/kernel/sysrq"),
    ):
        files.write_file(path, b"", mode=0o600)
        if os.path.exists(target):
            _bind(libc, path, target)


def _bind(libc: ctypes.CDLL, source: str, target: str) -> None:
    if not os.path.exists(source):
        raise errors.OpExecError(f"{source}: missing, cannot be bound to {target}")
    if libc.mount(source.encode(), target.encode(), None, _MS_BIND, None) != 0:
        number = ctypes.get_errno()
        raise errors.OpExecError(f"{target}: {os.strerror(number)}")
