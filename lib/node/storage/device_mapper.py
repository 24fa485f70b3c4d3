"""Logical volumes that the kernel knows, without LVM's tools, which read all devices.

What the kernel does not know may exist nevertheless, as an inactive volume.
"""

import os
import stat
from typing import Final

from ganeti.base.filesystem import files

#: Directory of the kernel with one entry per block device.
BLOCK: Final = "/sys/dev/block"
_SECTOR: Final = 512
_MAX_TEXT: Final = 4096


def size_bytes(path: str, group: str, name: str) -> int | None:
    """Return the size of an active volume; None if the device is not this volume.

    Args:
        path: of its device file.
        group: its volume group.
        name: its name in the group.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISBLK(status.st_mode):
            return None
        device = f"{BLOCK}/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        if _read(f"{device}/dm/name") != mapped_name(group, name):
            return None
        if not _read(f"{device}/dm/uuid").startswith("LVM-"):
            return None
        return int(_read(f"{device}/size")) * _SECTOR
    except (OSError, ValueError):
        return None


def mapped_name(group: str, name: str) -> str:
    """Return the kernel's name of a volume, see lvm(8)."""
    return "-".join(part.replace("-", "--") for part in (group, name))


def _read(path: str) -> str:
    return files.text_of(path, _MAX_TEXT).strip()
