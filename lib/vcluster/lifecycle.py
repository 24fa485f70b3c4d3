"""Taking a virtual cluster up and down."""

import concurrent.futures
import contextlib
import fcntl
import os
import socket
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from ganeti import errors
from ganeti.process import Runner
from ganeti.ssh import keys
from ganeti.utils import files
from ganeti.vcluster import agent, node_directories
from ganeti.vcluster import layout as lay
from ganeti.vcluster.nodes import NodeControl

T = TypeVar("T")
#: Node trees and servers that are made at the same time; more only share the cores.
PARALLEL: Final = 8
_REGISTRY: Final = "/tmp/.ganeti-vcluster-networks"  # noqa: S108 names only
_NODED_PORT: Final = 1811


@contextlib.contextmanager
def exclusive(directory: str, command: str) -> Iterator[None]:
    """Keep other vcluster commands that change a cluster out.

    Raises:
        OpPrereqError: another one is at work.
    """
    os.makedirs(directory, mode=0o755, exist_ok=True)
    path = os.path.join(directory, ".lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 200, 0).decode(errors="replace").strip()
            raise errors.OpPrereqError(
                f"{directory}: another vcluster command is at work there"
                f" ({holder or 'just started'}); wait for it",
                "resource_not_unique",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{command}, process {os.getpid()}".encode(), 0)
        yield
    finally:
        os.close(fd)


def in_parallel(work: Callable[[lay.Node], T], nodes: Sequence[lay.Node]) -> list[T]:
    """Do something for many nodes at once; the first error is raised at the end."""
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        futures = [pool.submit(work, node) for node in nodes]
    return [future.result() for future in futures]


class StepTimer:
    """Prints steps with the time they took."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._started = self._last = time.monotonic()

    def step(self, text: str) -> None:
        """Say that a step is done."""
        now = time.monotonic()
        self._say(f"  {text} ({now - self._last:.1f} s)")
        self._last = now

    @property
    def total_s(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._started


def reserve_network(directory: str, *, isolated: bool) -> str:
    """Choose two octets that no other virtual cluster of this machine uses.

    Raises:
        OpExecError: all are taken.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(_REGISTRY)
        os.chmod(_REGISTRY, 0o1777)  # noqa: S103 like /tmp, sticky
    for candidate in lay.candidate_networks(directory, isolated=isolated):
        path = os.path.join(_REGISTRY, candidate)
        if _claim(path, directory, candidate) and not _is_used(candidate, isolated):
            return candidate
    raise errors.OpExecError("all address blocks for virtual clusters are taken")


def _claim(path: str, directory: str, candidate: str) -> bool:
    try:
        owner = os.readlink(path)
    except FileNotFoundError:
        owner = ""
    if owner == directory:
        return True
    if (
        owner
        and lay.Layout.exists(owner)
        and lay.Layout.load(owner).network == (candidate)
    ):
        return False
    try:
        files.remove_file(path)
        os.symlink(directory, path)
    except OSError:
        return False
    return True


def _is_used(candidate: str, isolated: bool) -> bool:
    """Tell whether somebody listens where our first node would."""
    if isolated:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            first = f"{candidate}.0.{lay.FIRST_NODE + 1}"
            sock.bind((first, _NODED_PORT))
        except OSError:
            return True
    return False


def release_network(layout: lay.Layout) -> None:
    """Give the cluster's addresses back."""
    path = os.path.join(_REGISTRY, layout.network)
    with contextlib.suppress(OSError):
        if os.readlink(path) == layout.directory:
            os.unlink(path)


def make_machines(
    layout: lay.Layout, process: Runner, watch: StepTimer, *, same_keys: bool
) -> NodeControl:
    """Make and boot the nodes, as machines that are in no cluster yet.

    Args:
        layout: what to make.
        process: runs commands on nodes.
        watch: told the step.
        same_keys: all machines have the first one's host key and root key, for a
            cluster that leaves SSH to its administrator.
    """
    layout.save()
    node_directories.make_cluster(layout)
    in_parallel(lambda node: node_directories.make_node(layout, node), layout.nodes)
    control = NodeControl(layout, process)
    if layout.isolated:
        _network().up(layout)
    _let_master_in(layout)
    if same_keys:
        in_parallel(
            lambda node: node_directories.copy_keys(layout, node), layout.nodes[1:]
        )
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        started = pool.submit(agent.start, layout)
        in_parallel(control.boot, layout.nodes)
    started.result()
    watch.step(f"{len(layout.nodes)} machines with SSH servers")
    return control


def _network() -> types.ModuleType:
    """Load what isolated nodes alone need; it takes longer than most commands."""
    from ganeti.vcluster import network

    return network


def _let_master_in(layout: lay.Layout) -> None:
    """Do what the administrator does: the first node's root may log in everywhere."""
    ssh_dir = layout.host_path(layout.master_node, "/root/.ssh")
    path = keys.root_key_path(ssh_dir, "rsa")
    if not os.path.exists(path):
        keys.save(keys.generate("rsa", comment=f"root@{layout.master}"), path)
    node_directories.let_in(layout, keys.load(path).public)


def down(layout: lay.Layout, process: Runner, *, keep: bool = False) -> int:
    """End everything that runs on the nodes; return how many processes there were.

    Args:
        layout: the cluster.
        process: for commands on nodes.
        keep: leave the directories.
    """
    agent.stop(layout)
    control = NodeControl(layout, process)
    counts = in_parallel(control.kill, layout.nodes)
    if layout.isolated:
        _network().down(layout)
    release_network(layout)
    if not keep:
        node_directories.remove(layout)
    return sum(counts)
