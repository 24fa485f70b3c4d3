"""Start and stop of a virtual cluster."""

import concurrent.futures
import contextlib
import fcntl
import os
import socket
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.process import Runner
from ganeti.devel.vcluster import agent, node_directories
from ganeti.devel.vcluster import layout as layout_module
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.protocols.ssh import keys

T = TypeVar("T")
#: Nodes that are set up in parallel; more would only compete for the cores.
PARALLEL: Final = 8
_REGISTRY: Final = "/tmp/.ganeti-vcluster-networks"  # noqa: S108 names only
_NODED_PORT: Final = 1811


@contextlib.contextmanager
def exclusive(directory: str, command: str) -> Iterator[None]:
    """Exclude other vcluster commands that change the cluster during a block.

    Raises:
        OpPrereqError: another such command is running.
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
                f"{directory}: another vcluster command is running there"
                f" ({holder or 'just started'}); wait until it ends",
                "resource_not_unique",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{command}, process {os.getpid()}".encode(), 0)
        yield
    finally:
        os.close(fd)


def in_parallel(
    work: Callable[[layout_module.Node], T], nodes: Sequence[layout_module.Node]
) -> list[T]:
    """Call a function for many nodes in parallel; raise the first error at the end."""
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        futures = [pool.submit(work, node) for node in nodes]
    return [future.result() for future in futures]


class StepTimer:
    """Output of steps with their durations."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._started = self._last = time.monotonic()

    def step(self, text: str) -> None:
        """Print a finished step."""
        now = time.monotonic()
        self._say(f"  {text} ({now - self._last:.1f} s)")
        self._last = now

    @property
    def total_s(self) -> float:
        """Seconds since the creation of the timer."""
        return time.monotonic() - self._started


def reserve_network(directory: str, *, isolated: bool) -> str:
    """Reserve two octets that no other virtual cluster of this machine uses.

    Raises:
        OpExecError: all are in use.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(_REGISTRY)
        os.chmod(_REGISTRY, 0o1777)  # noqa: S103 like /tmp, sticky
    # Looking at an old claim and replacing it are one step for all who reserve.
    registry = os.open(_REGISTRY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(registry, fcntl.LOCK_EX)
        is_claimed_by_others = False
        for network in layout_module.candidate_networks(directory, isolated=isolated):
            path = os.path.join(_REGISTRY, network)
            if not _claim(path, directory, network):
                is_claimed_by_others = True
            elif not _is_used(network, isolated):
                return network
    finally:
        os.close(registry)
    if not is_claimed_by_others:
        raise errors.OpExecError(
            f"TCP port {_NODED_PORT} is in use on all addresses of this machine, as by"
            " the node daemon of a cluster that it belongs to; give --isolated, which"
            " makes networks of their own"
        )
    raise errors.OpExecError(
        "all address blocks for virtual clusters are in use; end one with"
        " `vcluster down`"
    )


def _claim(path: str, directory: str, network: str) -> bool:
    try:
        owner = os.readlink(path)
    except FileNotFoundError:
        owner = ""
    if owner == directory:
        return True
    if owner and _holds(owner, network):
        return False
    try:
        files.remove_file(path)
        os.symlink(directory, path)
    except OSError:
        return False
    return True


def _holds(owner: str, network: str) -> bool:
    """Return whether the cluster of a directory uses a network, or soon will."""
    if layout_module.Layout.exists(owner):
        return layout_module.Layout.load(owner).network == network
    # A command that claimed the network has not written the layout yet.
    return _is_changing(owner)


def _is_changing(directory: str) -> bool:
    """Return whether a command holds the lock of a directory, see `exclusive`."""
    try:
        fd = os.open(os.path.join(directory, ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        # Another user's; nobody else may replace that claim.
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _is_used(network: str, isolated: bool) -> bool:
    """Return whether the node daemon's port of the first node is in use."""
    if isolated:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            first = f"{network}.0.{layout_module.FIRST_NODE + 1}"
            sock.bind((first, _NODED_PORT))
        except OSError:
            return True
    return False


def release_network(layout: layout_module.Layout) -> None:
    """Release the cluster's addresses."""
    path = os.path.join(_REGISTRY, layout.network)
    with contextlib.suppress(OSError):
        if os.readlink(path) == layout.directory:
            os.unlink(path)


def make_machines(
    layout: layout_module.Layout, process: Runner, timer: StepTimer, *, same_keys: bool
) -> NodeControl:
    """Create and boot the nodes, as machines outside of any cluster.

    Args:
        layout: the virtual cluster.
        process: runs commands on nodes.
        timer: prints the step.
        same_keys: all machines get the first one's host key and root key, for a cluster
            that does not manage SSH keys.
    """
    layout.save()
    node_directories.make_cluster(layout)
    in_parallel(lambda node: node_directories.make_node(layout, node), layout.nodes)
    control = NodeControl(layout, process)
    if layout.isolated:
        _network().up(layout)
    _authorize_master(layout)
    if same_keys:
        in_parallel(
            lambda node: node_directories.copy_keys(layout, node), layout.nodes[1:]
        )
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        started = pool.submit(agent.start, layout)
        in_parallel(control.boot, layout.nodes)
    started.result()
    timer.step(f"{len(layout.nodes)} machines with SSH servers")
    return control


def _network() -> types.ModuleType:
    """Import the module for isolated nodes, which takes longer than most commands."""
    from ganeti.devel.vcluster import network

    return network


def _authorize_master(layout: layout_module.Layout) -> None:
    """Let the first node's root log in to all nodes, as an administrator would."""
    ssh_dir = layout.host_path(layout.master_node, "/root/.ssh")
    path = keys.root_key_path(ssh_dir, "rsa")
    if not os.path.exists(path):
        keys.save(keys.generate("rsa", comment=f"root@{layout.master}"), path)
    node_directories.authorize(layout, keys.load(path).public)


def down(layout: layout_module.Layout, process: Runner, *, keep: bool = False) -> int:
    """Kill all processes of the nodes; return their number.

    Args:
        layout: the cluster.
        process: runs commands on nodes.
        keep: keep the directories.
    """
    agent.stop(layout)
    control = NodeControl(layout, process)
    if layout.has_etcd:
        from ganeti.devel.vcluster import etcd

        etcd.stop_all(layout)
    counts = in_parallel(control.kill, layout.nodes)
    if layout.isolated:
        _network().down(layout)
    release_network(layout)
    if not keep:
        node_directories.remove(layout)
    return sum(counts)
