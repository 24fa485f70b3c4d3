"""Disks that are files: templates ``file`` and ``sharedfile``.

The logical id is ``(driver, path)``. A file has exactly the disk's size and is sparse;
`make_directory` and `remove_directory` create and remove its directory.
"""

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from typing import Any

from ganeti import errors, pathutils
from ganeti.constants import disks as disk_words
from ganeti.storage import allowed
from ganeti.storage.base import MIB, Device

#: Only root may read disk content.
_FILE_MODE = 0o600
_DIR_MODE = 0o750
#: Names of disk files: a uuid, the template, the index.
_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\w+\.disk\d+")


class FileDisk(Device):
    """A disk in a regular file."""

    @property
    def path(self) -> str:
        """Path of the file.

        Raises:
            FileStoragePathError: not in an allowed directory. So no operation on a disk
                reaches another file, whatever the record contains.
        """
        return self._allowed(self.disk.logical_id)

    def _allowed(self, logical_id: tuple[Any, ...]) -> str:
        return allowed.check(self._paths, self._configured(logical_id))

    def _configured(self, logical_id: tuple[Any, ...]) -> str:
        driver, path = (*logical_id, None, None)[:2]
        if driver not in disk_words.FILE_DRIVER or not isinstance(path, str):
            raise errors.BlockDeviceError(
                f"disk {self.disk.uuid}: wanted a file driver and a path, found"
                f" {list(logical_id)!r}"
            )
        return path

    def exists(self) -> bool:
        """Return whether the file exists.

        Raises:
            BlockDeviceError: the path exists and is not a regular file.
        """
        if not os.path.lexists(self.path):
            return False
        if not os.path.isfile(self.path):
            raise self.error("wanted a regular file, found something else")
        return True

    def create(
        self, size_mib: int, *, exclusive: bool = False, is_primary: bool = True
    ) -> None:
        """Create a sparse file, which takes space only as the guest writes.

        Raises:
            FileStoragePathError: not in an allowed directory.
            BlockDeviceError: it exists, its directory is missing, or the file
                system refuses a file of that size.
        """
        del exclusive, is_primary
        path = self.path
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._translated("creating"):
            fd = os.open(path, flags, _FILE_MODE)
        try:
            with self._translated("creating"):
                os.ftruncate(fd, size_mib * MIB)
        except (errors.BlockDeviceError, KeyboardInterrupt):
            os.unlink(path)
            raise
        finally:
            os.close(fd)

    def remove(self) -> None:
        """Delete the file."""
        path = self.path
        if self.exists():
            with self._translated("removing"):
                os.unlink(path)

    def grow(
        self,
        amount_mib: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive: bool = False,
    ) -> None:
        """Make the file longer; no logical layer exists above the storage.

        The new size is the recorded size plus the amount: space that an interrupted
        operation has added is not added again, nor removed.
        """
        del exclusive
        if amount_mib < 0:
            raise self.error(f"cannot grow by {amount_mib} MiB")
        size = self.size_bytes()
        wanted = (self.disk.size + amount_mib) * MIB
        if not backingstore or dryrun or wanted <= size:
            return
        with self._translated("growing"):
            os.truncate(self.path, wanted)

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Move the file; an existing file at the new path is never replaced."""
        self.require()
        new = self._allowed(new_id)
        with self._translated(f"renaming to {new}"):
            os.link(self.path, new)
            os.unlink(self.path)

    def size_bytes(self) -> int:
        """Return the length of the file."""
        self.require()
        return os.stat(self.path).st_size

    def close(self) -> None:
        """Accept it: a file has no state beyond its content."""

    def shutdown(self) -> None:
        """Accept it: a file has no state beyond its content."""

    def set_info(self, text: str) -> None:
        """Accept it: a file has no place for a text."""


def found_below(paths: pathutils.Paths, directories: Sequence[str]) -> dict[str, int]:
    """Return the disk files below directories: path as recorded -> bytes.

    Disk files are recognised by their names; other files are left out, as are
    directories that do not exist or may not hold disks.
    """
    sizes = {}
    for directory in directories:
        try:
            local = allowed.check(paths, directory, exact_ok=True)
        except errors.FileStoragePathError:
            continue
        for root, _dirs, names in os.walk(local):
            for name in filter(_NAME.fullmatch, names):
                with contextlib.suppress(FileNotFoundError):
                    size = os.lstat(f"{root}/{name}").st_size
                    sizes[f"{root}/{name}"[len(paths.root) :]] = size
    return sizes


def make_directory(paths: pathutils.Paths, directory: str) -> None:
    """Create a directory for an instance's disks, with its parent directories.

    Raises:
        FileStoragePathError: not in an allowed directory.
        StorageError: the directory cannot be created.
    """
    local = allowed.check(paths, directory)
    try:
        os.makedirs(local, mode=_DIR_MODE, exist_ok=True)
    except OSError as err:
        raise errors.StorageError(
            f"{directory}: cannot create the directory: {err.strerror}"
        ) from err


def remove_directory(paths: pathutils.Paths, directory: str) -> None:
    """Remove an empty directory; a missing directory is not an error.

    Raises:
        FileStoragePathError: not in an allowed directory.
        StorageError: the path is not a directory, or not empty.
    """
    local = allowed.check(paths, directory)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(local)
    except OSError as err:
        raise errors.StorageError(
            f"{directory}: cannot remove the directory: {err.strerror}"
        ) from err


def rename_directory(paths: pathutils.Paths, old: str, new: str) -> None:
    """Rename a directory of disks; do nothing if it is already renamed.

    Raises:
        FileStoragePathError: a path is not in an allowed directory.
        StorageError: both directories exist, or renaming failed.
    """
    source, target = allowed.check(paths, old), allowed.check(paths, new)
    if os.path.lexists(target):
        if os.path.lexists(source):
            raise errors.StorageError(f"cannot rename {old} to {new}: both exist")
        return
    try:
        os.makedirs(os.path.dirname(target), mode=_DIR_MODE, exist_ok=True)
        os.rename(source, target)
    except OSError as err:
        text = os.strerror(err.errno or errno.EIO)
        raise errors.StorageError(f"cannot rename {old} to {new}: {text}") from err
