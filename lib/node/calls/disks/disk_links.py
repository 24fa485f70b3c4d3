"""Symbolic links to instance disks: the stable paths that hypervisors open."""

import contextlib
import os
from collections.abc import Callable

from ganeti.base import errors, pathutils
from ganeti.base.process import Runner
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage
from ganeti.node.hypervisor.base import check_instance_name


def directory(paths: pathutils.Paths) -> str:
    """Return the directory of the links."""
    return f"{paths.run_dir}/instance-disks"


def link_path(paths: pathutils.Paths, instance: str, index: int) -> str:
    """Return the path of the link to one disk of an instance."""
    return f"{directory(paths)}/{check_instance_name(instance)}:{index}"


def make(paths: pathutils.Paths, instance: str, index: int, target: str) -> str:
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
        os.makedirs(directory(paths), mode=0o755, exist_ok=True)
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


def remove(paths: pathutils.Paths, instance: str, count: int) -> None:
    """Remove the links of an instance's first disks, and what a cut `make` left."""
    for index in range(count):
        link = link_path(paths, instance, index)
        for path in (link, f"{link}.new"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def remove_to(paths: pathutils.Paths, target: str) -> None:
    """Remove the links to a disk that does not exist any more."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory(paths)):
            with contextlib.suppress(OSError):
                if entry.is_symlink() and os.readlink(entry.path) == target:
                    os.unlink(entry.path)


def opener(paths: pathutils.Paths, process: Runner) -> Callable[[DiskX, str, int], int]:
    """Return the function with which hypervisors open disks; see `NodeEffects`.

    The driver of a linked disk opens its content. Other paths are those of a helper
    machine's own disks, in directories that only this node writes.
    """

    def opened(disk: DiskX, path: str, flags: int) -> int:
        if os.path.dirname(path) == directory(paths):
            return storage.device(paths, disk, process).open_content(flags)
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)

    return opened
