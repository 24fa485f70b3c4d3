"""The command that mounts the root file system of a container from its first disk.

The file system is on the whole disk, or on the first partition of a disk with a
partition table. The content of the disk is the guest's: programs that are made to read
it are run with limits, and only numbers are taken from their output.
"""

import os
import re
import stat
from typing import Final

from ganeti.base import errors
from ganeti.node.hypervisor.base import AttachedDisk, NodeEffects

_TIMEOUT_S: Final = 30.0
_MAX_OUTPUT: Final = 65536
#: Unit of partx, whatever the sectors of the disk are.
_SECTOR_BYTES: Final = 512
#: Exit code of blkid for a disk without a known content.
_NOTHING_THERE: Final = 2


def mount_command(
    effects: NodeEffects, attached: AttachedDisk, directory: str
) -> list[str]:
    """Return the command that mounts the root file system on a directory.

    A loop device that it makes for a file or a partition is released with the mount.

    Raises:
        HypervisorError: the disk has no file system; names the disk.
    """
    path = os.path.realpath(attached.path)
    options = ["ro"] if attached.disk.mode == "ro" else []
    partition = _first_partition(effects, attached, path)
    if partition is not None:
        start, size = partition
        options += ["loop", f"offset={start}", f"sizelimit={size}"]
    elif stat.S_ISREG(os.stat(path).st_mode):
        options.append("loop")
    words = ["-o", ",".join(options)] if options else []
    return ["/bin/mount", *words, "--", path, directory]


def _first_partition(
    effects: NodeEffects, attached: AttachedDisk, path: str
) -> tuple[int, int] | None:
    """Return start and size in bytes, None for a file system on the whole disk."""
    probe = ("blkid", "-p", "-o", "export", "-s", "TYPE", "-s", "PTTYPE", "--", path)
    result = effects.process.run_bounded(
        probe, timeout_s=_TIMEOUT_S, max_output=_MAX_OUTPUT
    )
    if result.code == _NOTHING_THERE:
        raise errors.HypervisorError(
            f"{_named(attached)}: wanted a file system for the container's root, found"
            " neither a file system nor a partition table"
        )
    if result.failed:
        raise errors.HypervisorError(
            f"{_named(attached)}: its content is unknown: blkid {result.reason}"
        )
    kinds = {line.partition("=")[0] for line in result.stdout.splitlines()}
    if "TYPE" in kinds or "PTTYPE" not in kinds:
        return None
    listed = effects.process.run_bounded(
        ("partx", "-s", "-g", "-b", "-n", "1", "-o", "START,SIZE", "--", path),
        timeout_s=_TIMEOUT_S,
        max_output=_MAX_OUTPUT,
    )
    numbers = re.fullmatch(r"\s*(\d{1,15})\s+(\d{1,18})\s*", listed.stdout, re.ASCII)
    if listed.failed or numbers is None:
        raise errors.HypervisorError(
            f"{_named(attached)}: wanted a partition for the container's root, found"
            f" none: partx {listed.reason}"
        )
    return int(numbers[1]) * _SECTOR_BYTES, int(numbers[2])


def _named(attached: AttachedDisk) -> str:
    return f"disk {attached.disk.uuid} ({attached.path})"
