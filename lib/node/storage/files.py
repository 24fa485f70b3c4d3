"""Disks that are files: templates ``file`` and ``sharedfile``.

The logical id is ``(driver, path)``. A file has exactly the disk's size and is sparse;
`make_directory` and `remove_directory` create and remove its directory.
"""

import contextlib
import errno
import itertools
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ganeti.base import errors, pathutils
from ganeti.base.constants import disks
from ganeti.base.filesystem import beneath
from ganeti.node.storage import allowed
from ganeti.node.storage.base import MIB, Device

#: Only root may read disk content.
_FILE_MODE = 0o600
_DIR_MODE = 0o750
#: Names of disk files: a uuid, the template, the index.
_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\w+\.disk\d+")
#: Most disk files that are found, and levels of directories above them.
_MAX_FOUND = 1_000_000
_MAX_LEVELS = 16


class FileDisk(Device):
    """A disk in a regular file."""

    #: Mode of directories that creation makes; None: they must be there.
    _made_mode: ClassVar[int | None] = None

    @property
    def path(self) -> str:
        """Path of the file, which is shown and linked; `opened` opens it.

        Raises:
            FileStoragePathError: not in an allowed directory. So no operation on a disk
                reaches another file, whatever the record contains.
        """
        return self._place.path

    @property
    def _place(self) -> beneath.Place:
        return self._allowed(self.disk.logical_id)

    def _allowed(self, logical_id: tuple[Any, ...]) -> beneath.Place:
        return allowed.place(self._paths, self._configured(logical_id))

    def open_content(self, flags: int) -> int:
        """Open the file, and no other that has its name by now."""
        return self._place.open(flags)

    def _configured(self, logical_id: tuple[Any, ...]) -> str:
        driver, path = (*logical_id, None, None)[:2]
        if driver not in disks.FILE_DRIVER or not isinstance(path, str):
            raise errors.BlockDeviceError(
                f"disk {self.disk.uuid}: wanted a file driver and a path, found"
                f" {list(logical_id)!r}"
            )
        return path

    def exists(self) -> bool:
        """Return whether the file exists.

        Raises:
            BlockDeviceError: the path exists and is not a regular file.
            FileStoragePathError: a directory of it is a symbolic link.
        """
        try:
            with self._translated("examining"):
                mode = self._place.status().st_mode
        except errors.BlockDeviceError as err:
            if isinstance(err.__cause__, FileNotFoundError | NotADirectoryError):
                return False
            raise
        if not stat.S_ISREG(mode):
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
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            self._translated("creating"),
            self._place.parent(make_mode=self._made_mode) as (directory, name),
        ):
            fd = os.open(name, flags, _FILE_MODE, dir_fd=directory)
            try:
                os.ftruncate(fd, size_mib * MIB)
            except (OSError, KeyboardInterrupt):
                os.unlink(name, dir_fd=directory)
                raise
            finally:
                os.close(fd)

    def remove(self) -> None:
        """Delete the file."""
        if self.exists():
            with (
                self._translated("removing"),
                self._place.parent() as (directory, name),
            ):
                os.unlink(name, dir_fd=directory)

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
        with self._translated("growing"), self.opened(os.O_WRONLY) as fd:
            os.ftruncate(fd, wanted)

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Move the file; an existing file at the new path is never replaced."""
        self.require()
        new = self._allowed(new_id)
        with (
            self._translated(f"renaming to {new.path}"),
            self._place.parent() as (source, old_name),
            new.parent() as (target, name),
        ):
            # rename(2) would replace a file that has the new name, link(2) refuses.
            os.link(
                old_name,
                name,
                src_dir_fd=source,
                dst_dir_fd=target,
                follow_symlinks=False,
            )
            os.unlink(old_name, dir_fd=source)

    def size_bytes(self) -> int:
        """Return the length of the file."""
        self.require()
        with self._translated("examining"):
            return self._place.status().st_size

    def close(self) -> None:
        """Accept it: a file has no state beyond its content."""

    def shutdown(self) -> None:
        """Accept it: a file has no state beyond its content."""

    def set_info(self, text: str) -> None:
        """Accept it: a file has no place for a text."""


def found_below(paths: pathutils.Paths, directories: Sequence[str]) -> dict[str, int]:
    """Return the disk files below directories: path as recorded -> bytes.

    Disk files are recognised by their names; other files are left out, as are
    directories that do not exist or may not hold disks. Other nodes write to shared
    storage, so names that no instance has, deep directories and masses of files are
    left out, too.
    """
    sizes: dict[str, int] = {}
    for directory in directories:
        with contextlib.suppress(errors.FileStoragePathError, OSError):
            place = allowed.place(paths, directory, exact_ok=True)
            with place.directory() as top:
                room = _MAX_FOUND - len(sizes)
                for name, size in itertools.islice(_disk_files(top), room):
                    sizes[f"{place.path}/{name}"[len(paths.root) :]] = size
    return sizes


def _disk_files(top: int) -> Iterator[tuple[str, int]]:
    """Yield path and bytes of the disk files below an open directory."""
    for root, dirs, names, fd in os.fwalk(".", dir_fd=top):
        is_deep = root.count("/") >= _MAX_LEVELS
        dirs[:] = [name for name in dirs if name.isprintable() and not is_deep]
        for name in filter(_NAME.fullmatch, names):
            with contextlib.suppress(FileNotFoundError):
                # Another node can remove it during the walk.
                size = os.lstat(name, dir_fd=fd).st_size
                yield os.path.normpath(f"{root}/{name}"), size


def make_directory(paths: pathutils.Paths, directory: str) -> None:
    """Create a directory for an instance's disks, with its parent directories.

    Raises:
        FileStoragePathError: not in an allowed directory.
        StorageError: the directory cannot be created.
    """
    place = allowed.place(paths, directory)
    try:
        # An allowed directory is made, too: the first disk may be the first use.
        os.makedirs(place.top, mode=_DIR_MODE, exist_ok=True)
        with place.directory(make_mode=_DIR_MODE):
            pass
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
    place = allowed.place(paths, directory)
    try:
        with (
            contextlib.suppress(FileNotFoundError),
            place.parent() as (above, name),
        ):
            os.rmdir(name, dir_fd=above)
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
    source, target = allowed.place(paths, old), allowed.place(paths, new)
    try:
        if _is_there(target):
            if _is_there(source):
                raise errors.StorageError(f"cannot rename {old} to {new}: both exist")
            return
        with (
            source.parent() as (above, name),
            target.parent(make_mode=_DIR_MODE) as (new_above, new_name),
        ):
            os.rename(name, new_name, src_dir_fd=above, dst_dir_fd=new_above)
    except OSError as err:
        text = os.strerror(err.errno or errno.EIO)
        raise errors.StorageError(f"cannot rename {old} to {new}: {text}") from err


def _is_there(place: beneath.Place) -> bool:
    try:
        place.status()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
