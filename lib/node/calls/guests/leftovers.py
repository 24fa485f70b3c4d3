"""Files that instances leave on a node: disk links, reason trails, firmware.

Most links go when an instance stops. A link stays when a node or a job ends in between,
and reason trails, UEFI variables and TPMs stay until their instance is removed. Which
instances exist is known from the node's ssconf files.
"""

import contextlib
import logging
import os
from collections.abc import Collection, Iterator
from typing import Final

from ganeti.base import errors
from ganeti.node.calls.disks import disk_links
from ganeti.node.calls.guests import reason_trail
from ganeti.node.calls.registry import LocalNode
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import kept
from ganeti.node.hypervisor.kvm.devices import tpm
from ganeti.protocols import ssconf

_log = logging.getLogger(__name__)

#: Seconds after which a file of an instance that is not in the list is removed. The
#: list of a node can be behind: a new instance has links before it is in the list.
_AGE_S: Final = 3600.0


def listed(node: LocalNode) -> frozenset[str] | None:
    """Return the instances that the node knows, None if it has no list."""
    store = ssconf.SimpleStore(node.paths)
    if not os.path.exists(store.path("instance_list")):
        return None
    try:
        return frozenset(store.instance_list())
    except (errors.GenericError, OSError, ValueError) as err:
        _log.warning("cannot read the list of instances: %s", err)
        return None


def sweep(node: LocalNode, removed: Collection[str] = ()) -> list[str]:
    """Remove the files of instances that do not exist; return their paths.

    Files of instances that are not in the list go when they are an hour old. The
    following go at once: links to disks that do not exist, and the reason trails of
    instances that were removed.

    Args:
        node: this node.
        removed: instances that were in the list before the last change of it.
    """
    present = listed(node)
    if present is None:
        return []
    swept = []
    for path, instance in _instance_files(node):
        if instance in present:
            continue
        is_link = os.path.islink(path)
        is_over = not os.path.exists(path) if is_link else instance in removed
        if is_over or _age_s(node, path) > _AGE_S:
            if os.path.isdir(path) and not is_link:
                kept.remove(node.paths, instance)
                swept.append(path)
                continue
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                swept.append(path)
    if swept:
        _log.info("removed files of instances that are gone: %s", ", ".join(swept))
    return swept


def end_processes(node: LocalNode) -> None:
    """End processes of guests that a killed daemon did not start completely.

    Only for the start of the node daemon.
    """
    tpm.end_abandoned(NodeEffects(node.paths, node.process, node.clock))


def _instance_files(node: LocalNode) -> Iterator[tuple[str, str]]:
    """Yield the path of each file, and the instance to which it belongs."""
    links, trails = disk_links.directory(node.paths), reason_trail.directory(node.paths)
    for name in _names(links):
        path = f"{links}/{name}"
        if os.path.islink(path):
            yield path, name.rpartition(":")[0]
    stores = kept.directory(node.paths)
    for name in _names(stores):
        yield f"{stores}/{name}", name
    for name in _names(trails):
        path = f"{trails}/{name}"
        if os.path.isfile(path):
            yield path, name


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def _age_s(node: LocalNode, path: str) -> float:
    try:
        return node.clock.time() - os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0
