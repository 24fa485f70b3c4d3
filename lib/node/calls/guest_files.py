"""Files of instances on a node: disk links, reason trails, marks of helper machines.

Disk links are symbolic links, the stable paths that hypervisors open. A reason trail
says why an instance was last started, stopped or rebooted.

A mark says that the guest of this name is a helper machine and may be ended by force;
it is gone after a reboot. So each start of the instance itself removes it: that of a
helper machine that nobody could end may be left.

Most links go when an instance stops. A link stays when a node or a job ends in between,
and reason trails, UEFI variables and TPMs stay until their instance is removed. Which
instances exist is known from the node's ssconf files.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterator
from typing import Final

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.model import serializer
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage
from ganeti.node.calls.registry import LocalNode
from ganeti.node.hypervisor.base import NodeEffects, check_instance_name
from ganeti.node.hypervisor.kvm.devices import firmware, tpm
from ganeti.protocols import ssconf


def link_directory(paths: pathutils.Paths) -> str:
    """Return the directory of the links."""
    return f"{paths.run_dir}/instance-disks"


def link_path(paths: pathutils.Paths, instance: str, index: int) -> str:
    """Return the path of the link to one disk of an instance."""
    return f"{link_directory(paths)}/{check_instance_name(instance)}:{index}"


def make_link(paths: pathutils.Paths, instance: str, index: int, target: str) -> str:
    """Link a disk, replacing a link to another target, and return the link's path.

    A disk without a path, which has only a URI, gets no link; then the path is empty.

    Raises:
        BlockDeviceError: the link cannot be made.
    """
    link = link_path(paths, instance, index)
    if not target:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(link)
        return ""
    try:
        if os.path.islink(link) and os.readlink(link) == target:
            return link
        os.makedirs(link_directory(paths), mode=0o755, exist_ok=True)
        temp = f"{link}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        os.symlink(target, temp)
        os.rename(temp, link)
    except OSError as err:
        raise errors.BlockDeviceError(
            f"instance {instance}: cannot link disk {index}: {err}"
        ) from err
    return link


def remove_links(paths: pathutils.Paths, instance: str, count: int) -> None:
    """Remove the links of an instance's first disks, and what a cut `make` left."""
    for index in range(count):
        link = link_path(paths, instance, index)
        for path in (link, f"{link}.new"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def remove_links_to(paths: pathutils.Paths, target: str) -> None:
    """Remove the links to a disk that does not exist any more."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(link_directory(paths)):
            with contextlib.suppress(OSError):
                if entry.is_symlink() and os.readlink(entry.path) == target:
                    os.unlink(entry.path)


def opener(paths: pathutils.Paths, process: Runner) -> Callable[[DiskX, str, int], int]:
    """Return the function with which hypervisors open disks; see `NodeEffects`.

    The driver of a linked disk opens its content. Other paths are those of a helper
    machine's own disks, in directories that only this node writes.
    """

    def opened(disk: DiskX, path: str, flags: int) -> int:
        if os.path.dirname(path) == link_directory(paths):
            return storage.device(paths, disk, process).open_content(flags)
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)

    return opened


#: First word of the entry that a node adds to the trail.
_SOURCE = "gnt:daemon:noded"


def trail_directory(paths: Paths) -> str:
    """Return the directory of the trails."""
    return f"{paths.run_dir}/instance-reason"


def reason_file(node: LocalNode, instance: str) -> str:
    """Return the path of an instance's reason trail."""
    return f"{trail_directory(node.paths)}/{check_instance_name(instance)}"


def store_reason(
    node: LocalNode, instance: str, action: str, trail: list[tuple[str, str, int]]
) -> None:
    """Write the reason trail of an action, with this node as the last entry."""
    path = reason_file(node, instance)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    stamp = int(node.clock.time() * 1_000_000_000)
    entries = [*trail, (f"{_SOURCE}:{action}", "", stamp)]
    files.write_file(path, serializer.dump(entries), mode=0o644)


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
                firmware.remove_kept(node.paths, instance)
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
    links, trails = link_directory(node.paths), trail_directory(node.paths)
    for name in _names(links):
        path = f"{links}/{name}"
        if os.path.islink(path):
            yield path, name.rpartition(":")[0]
    stores = firmware.kept_directory(node.paths)
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


def _path(paths: Paths, name: str) -> str:
    return f"{paths.run_dir}/helper-machines/{check_instance_name(name)}"


def mark_helper(paths: Paths, name: str) -> None:
    """Mark the guest of an instance as a helper machine."""
    path = _path(paths, name)
    files.make_dir(os.path.dirname(path), 0o755)
    files.write_file(path, "", mode=0o600)


def is_helper(paths: Paths, name: str) -> bool:
    """Return whether the guest of an instance is a helper machine, if it runs."""
    return os.path.exists(_path(paths, name))


def unmark_helper(paths: Paths, name: str) -> None:
    """Remove the mark of an instance, if there is one."""
    files.remove_file(_path(paths, name))
