"""Procedures that inspect this node: resources, addresses, bridges, files; pauses."""

import os
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import network
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.model import serializer
from ganeti.node.calls.disks import storage_units
from ganeti.node.calls.registry import LocalNode, procedure

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
#: File in a virtual node's root; simple virtual nodes share the kernel's boot id.
BOOT_ID_NAME: Final = "boot-id"
_NETWORKS: Final = "/sys/class/net"
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
    virtual = {network.USER_NETWORK} if node.paths.is_virtual else set()
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
