"""Whether a block device is free: the kernel's exclusive use, and open files."""

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, Protocol

from ganeti.base.filesystem import files

#: Programs that look at each device that changes, for a moment.
_PASSING: Final = ("systemd-udevd", "(udev-worker)", "udevd")
#: Whether a mode is that of a block device.
_is_block = stat.S_ISBLK


class Kernel(Protocol):
    """The questions about devices that no program of util-linux answers."""

    def claim(self, path: str, number: str) -> str | None:
        """Return why a device cannot be used exclusively now, None if it can."""

    def users(self) -> dict[str, str]:
        """Return device number -> process that has the device open."""


class SystemKernel:
    """The kernel of this machine."""

    def claim(self, path: str, number: str) -> str | None:
        """Return why a device cannot be used exclusively now, None if it can.

        File systems, swap, RAID, LVM and DRBD have the devices below them exclusively,
        in any namespace; see ``O_EXCL`` in open(2).

        Args:
            path: of the device.
            number: the ``MAJOR:MINOR`` that it must have.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as err:
            if err.errno == errno.EBUSY:
                return "is in use by the kernel"
            return f"cannot be opened: {err.strerror}"
        try:
            info = os.fstat(fd)
        finally:
            os.close(fd)
        if not _is_block(info.st_mode) or _number(info) != number:
            return "is not the device that was found before"
        return None

    def users(self) -> dict[str, str]:
        """Return device number -> process that has the device open.

        A guest has its disk open like a file, not exclusively.
        """
        return {
            number: f"{pid} ({name})"
            for pid in os.listdir("/proc")
            if pid.isdecimal() and (name := _name(pid)) not in _PASSING
            for number in _open_devices(pid)
        }


def _open_devices(pid: str) -> Iterator[str]:
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return  # It has ended.
    for name in names:
        try:
            info = os.stat(f"{directory}/{name}")
        except OSError:
            continue
        if _is_block(info.st_mode):
            yield _number(info)


def _name(pid: str) -> str:
    try:
        return files.text_of(f"/proc/{pid}/comm", 64).strip()
    except OSError:
        return ""


def _number(info: os.stat_result) -> str:
    return f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
