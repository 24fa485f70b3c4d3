"""Procedures of the node itself: resources, files, networks, peers, watcher pause."""

import os
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import misc, versions
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.model import serializer
from ganeti.node.calls.disks import storage_units
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage import heartbeats


@procedure("version")
def version(node: LocalNode) -> int:
    """Return the protocol version."""
    del node
    return versions.PROTOCOL_VERSION


@procedure("master_node_name")
def master_node_name(node: LocalNode) -> str:
    """Return the name of the master node according to this node's ssconf."""
    return node.ssconf.master_node()


@procedure("test_delay")
def test_delay(node: LocalNode, duration: float) -> None:
    """Wait ``duration`` seconds."""
    if duration < 0:
        raise errors.GenericError(
            f"test_delay: wanted a duration of at least 0 s, found {duration}"
        )
    node.clock.wait(threading.Event(), duration)


@procedure("call_abort")
def call_abort(node: LocalNode, call_id: str) -> bool:
    """End the programs of a call; return whether the call was running."""
    calls = node.running_calls
    return calls is not None and calls.abort(call_id)


_NETWORKS: Final = "/sys/class/net"
#: Names of interfaces; one that begins with a dash would be an option.
_INTERFACE_NAME: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,14}")
#: Seconds that the switch's daemon gets for a change; without limit the tool waits for
#: a daemon that does not run.
_OVS_TIMEOUT_S: Final = 60


@procedure("node_configure_ovs")
def node_configure_ovs(node: LocalNode, ovs_name: str, ovs_link: str | None) -> None:
    """Create a switch if it does not exist, and add a physical port if it has none.

    Raises:
        GenericError: a malformed name, no such interface, or no Open vSwitch here.
    """
    if not _INTERFACE_NAME.fullmatch(ovs_name):
        raise errors.GenericError(
            f"Open vSwitch: wanted the name of a switch, found {ovs_name!r}"
        )
    argv = [f"--timeout={_OVS_TIMEOUT_S}", "--", "--may-exist", "add-br", ovs_name]
    if ovs_link:
        if not _INTERFACE_NAME.fullmatch(ovs_link) or not os.path.isdir(
            f"{_NETWORKS}/{ovs_link}"
        ):
            raise errors.GenericError(
                f"Open vSwitch: wanted an interface of this node as link of {ovs_name},"
                f" found {ovs_link!r}"
            )
        argv += ["--", "--may-exist", "add-port", ovs_name, ovs_link]
    try:
        result = node.process.run(["ovs-vsctl", *argv])
    except errors.CommandError as err:
        raise errors.GenericError(
            f"Open vSwitch: {err}; install the package openvswitch-switch"
        ) from err
    if result.failed:
        raise errors.GenericError(
            f"Open vSwitch: ovs-vsctl {result.reason}: {result.output.strip()}"
        )


#: Nodes that are asked at the same time.
_AT_ONCE: Final = 16
#: Seconds that a server has to react.
_REACTION_S: Final = 1.5
#: A request in plain text. A TLS server rejects it by closing the connection, which
#: takes no more than this one packet and needs no certificate.
_NO_HANDSHAKE: Final = b"\r\n\r\n"


def _require_few(call: str, nodes: Sequence[Any]) -> None:
    most = misc.MAX_ASKED_ABOUT
    if len(nodes) > most:
        raise errors.OpExecError(
            f"{call}: wanted at most {most} nodes, found {len(nodes)}"
        )


@procedure("node_reaches")
def node_reaches(
    node: LocalNode, nodes: list[tuple[str, int, int]]
) -> list[tuple[bool, bool]]:
    """Return whether servers of other nodes react.

    Args:
        node: this node.
        nodes: address, port of the node daemon, port of the SSH server.

    Returns:
        for each node, whether its node daemon and its SSH server react.

    Raises:
        OpExecError: too many nodes, or an entry that is no address.
    """
    del node
    _require_few("node_reaches", nodes)
    for address, *_ports in nodes:
        if not netutils.is_address(address):
            raise errors.OpExecError(
                f"node_reaches: wanted an address, found {address!r}"
            )
    if not nodes:
        return []
    with ThreadPoolExecutor(_AT_ONCE, "reach") as pool:
        daemons = [
            pool.submit(
                netutils.server_reacts,
                *(address, port),
                timeout_s=_REACTION_S,
                greeting=_NO_HANDSHAKE,
            )
            for address, port, _ssh in nodes
        ]
        shells = [
            pool.submit(netutils.server_reacts, address, ssh, timeout_s=_REACTION_S)
            for address, _port, ssh in nodes
        ]
        return [
            (daemon.result(), shell.result())
            for daemon, shell in zip(daemons, shells, strict=True)
        ]


@procedure("node_heartbeats")
def node_heartbeats(node: LocalNode, nodes: list[str]) -> list[tuple[str, int] | None]:
    """Return heartbeats of other nodes that a process of this node has read.

    The storage is not touched here, so this call does not hang with it. A first call
    asks the process, later ones have its answers.

    Args:
        node: this node.
        nodes: names of the others.

    Returns:
        for each of them, the id of the process that writes and the number of its
        heartbeat, which grows while it lives; None if none was read that counts.

    Raises:
        OpExecError: too many nodes, or a text that is no name.
        OSError: the request cannot be written.
    """
    _require_few("node_heartbeats", nodes)
    for name in nodes:
        if not heartbeats.is_name(name):
            raise errors.OpExecError(
                f"node_heartbeats: wanted the name of a node, found {name!r}"
            )
    return heartbeats.ask(node.paths, nodes, node.clock.monotonic())


_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
#: File in a virtual node's root; simple virtual nodes share the kernel's boot id.
BOOT_ID_NAME: Final = "boot-id"
_PAUSE_FILE: Final = "watcher.pause"


@procedure("node_info")
def node_info(
    node: LocalNode,
    storage_units_: list[tuple[str, str, list[Any]]] | None,
    hv_specs: list[tuple[str, dict[str, Any]]] | None,
) -> tuple[str, list[Any] | None, list[Any] | None]:
    """Return boot id, and the requested storage and hypervisor reports."""
    reports = hosts = None
    if storage_units_ is not None:
        reports = storage_units.space_reports(node, storage_units_)
    if hv_specs is not None:
        hosts = [node.hypervisor(name).node_info(params) for name, params in hv_specs]
    return boot_id(node.paths), reports, hosts


def boot_id(paths: Paths) -> str:
    """Return an identifier that changes with each boot of the machine."""
    own = f"{paths.root}/{BOOT_ID_NAME}"
    path = own if paths.is_virtual and os.path.exists(own) else _BOOT_ID
    return files.read_file(path).decode().strip()


@procedure("node_has_ip_address")
def node_has_ip_address(node: LocalNode, address: str) -> bool:
    """Return whether this machine has an address."""
    del node
    return netutils.owns_address(address)


@procedure("bridges_exist")
def bridges_exist(node: LocalNode, bridges_list: list[str]) -> None:
    """Check that network bridges exist.

    Raises:
        GenericError: names the missing bridges.
    """
    if missing := missing_bridges(node, bridges_list):
        raise errors.GenericError(
            f"missing bridges {', '.join(n or '(no name)' for n in missing)}"
        )


def missing_bridges(node: LocalNode, names: list[str]) -> list[str]:
    """Return those names that are not bridges of this node, sorted."""
    virtual = {misc.USER_NETWORK} if node.paths.is_virtual else set()
    return sorted(
        name
        for name in set(names) - virtual
        if "/" in name or not os.path.isdir(f"{_NETWORKS}/{name}/bridge")
    )


@procedure("get_file_info")
def get_file_info(node: LocalNode, file_path: str) -> tuple[bool, dict[str, int]]:
    """Return whether a file exists, and its size in bytes."""
    try:
        info = os.stat(node.paths.localize(file_path))
    except OSError:
        return False, {}
    return True, {"size": info.st_size}


@procedure("get_watcher_pause")
def get_watcher_pause(node: LocalNode) -> float | None:
    """Return the end of the watcher's pause, None without a pause."""
    try:
        until = float(files.read_file(node.paths.data(_PAUSE_FILE)))
    except (OSError, ValueError):
        return None
    return until if until > node.clock.time() else None


@procedure("set_watcher_pause")
def set_watcher_pause(node: LocalNode, until: float | None) -> None:
    """Pause the watcher until a time, or end its pause."""
    path = node.paths.data(_PAUSE_FILE)
    if until is None:
        files.remove_file(path)
        return
    files.write_file(path, serializer.dump(until) + b"\n", mode=0o644)
