"""Isolated nodes: namespaces held by one small process per node.

The holder is the first process of the node's PID namespace. When it dies, the kernel
kills all other processes there, as a power failure does.
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

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.devel.vcluster import processes
from ganeti.devel.vcluster.layout import Layout, Node

#: Standard paths that each node has its own version of; it shares all others with this
#: machine.
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
# From linux/mount.h.
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
_MS_NOEXEC: Final = 8
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_READY: Final = b"ready\n"
HOLD_COMMAND: Final = "hold-namespaces"


def start(layout: Layout, node: Node) -> None:
    """Create a node's namespaces unless they exist.

    Raises:
        OpExecError: the kernel or missing privileges do not allow it.
    """
    from ganeti.devel.vcluster import network

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
            f"node {node.short}: its namespaces cannot be created:"
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
    raise errors.OpExecError(f"process {pid}: has no child although it reported one")


def _pid_file(layout: Layout, node: Node) -> str:
    return os.path.join(layout.directory, "state", f"{node.name}.holder.pid")


def holder(layout: Layout, node: Node) -> int | None:
    """Return the process that holds a node's namespaces, None if the node is down."""
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
    """Remove the record of a node whose namespaces are gone."""
    files.remove_file(_pid_file(layout, node))


def enter(layout: Layout, node: Node, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command inside a node."""
    pid = require_holder(layout, node)
    enter_all = ("nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p")
    return [*enter_all, "--wd=/", "--", *command]


def processes_of(layout: Layout, node: Node) -> list[processes.Process]:
    """Return the processes inside a node, including its holder."""
    pid = holder(layout, node)
    if pid is None:
        return []
    return processes.of_namespace(processes.pid_namespace(pid))


def hold(layout: Layout, node: Node) -> int:
    """Run as a node's first process: set up its mounts, then reap orphans.

    Returns on SIGTERM.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for path in BOUND:
        _bind(libc, layout.host_path(node, path), os.path.realpath(path))
    _bind(libc, layout.shared_directory, _buildconf.SHARED_FILE_STORAGE_DIR)
    _mount_sysfs(libc)
    _disarm_reset(libc, layout, node)
    _give_boot_id(libc, layout, node)
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
    """Return the file that a node writes to request a reset."""
    return os.path.join(layout.directory, "state", f"{node.name}.sysrq-trigger")


def _disarm_reset(libc: ctypes.CDLL, layout: Layout, node: Node) -> None:
    """Mount plain files over the kernel's reset switch, which the nodes share.

    Otherwise the power cycle of a node would reset this machine with all its nodes.
    """
    enable = os.path.join(layout.directory, "state", f"{node.name}.sysrq")
    for path, target in (
        (reset_file(layout, node), "/proc/sysrq-trigger"),
        (enable, "/proc/sys/kernel/sysrq"),
    ):
        files.write_file(path, b"", mode=0o600)
        if os.path.exists(target):
            _bind(libc, path, target)


def new_boot_id() -> str:
    """Return an identifier for one boot of a node, as the kernel makes them."""
    return files.read_file("/proc/sys/kernel/random/uuid").decode()


def _give_boot_id(libc: ctypes.CDLL, layout: Layout, node: Node) -> None:
    """Mount a new boot id over the machine's, which is the same after a power cycle."""
    path = os.path.join(layout.directory, "state", f"{node.name}.boot-id")
    files.write_file(path, new_boot_id(), mode=0o644)
    _bind(libc, path, "/proc/sys/kernel/random/boot_id")


def _mount_sysfs(libc: ctypes.CDLL) -> None:
    """Mount the node's own view of /sys, which has the interfaces of its network.

    Control groups keep their place below it.
    """
    groups = "/sys/fs/cgroup"
    keep = os.path.ismount(groups)
    if keep:
        before = os.open(groups, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    if libc.mount(b"sysfs", b"/sys", b"sysfs", flags, None) != 0:
        number = ctypes.get_errno()
        raise errors.OpExecError(f"/sys: cannot be mounted: {os.strerror(number)}")
    if keep:
        _bind(libc, f"/proc/self/fd/{before}", groups)
        os.close(before)


def _bind(libc: ctypes.CDLL, source: str, target: str) -> None:
    if not os.path.exists(source):
        raise errors.OpExecError(f"{source}: missing, cannot be mounted on {target}")
    if (
        libc.mount(source.encode(), target.encode(), None, _MS_BIND | _MS_REC, None)
        != 0
    ):
        number = ctypes.get_errno()
        raise errors.OpExecError(f"{target}: cannot be mounted: {os.strerror(number)}")
