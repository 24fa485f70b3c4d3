"""Files below a directory, however others change what is in it.

Other nodes write to shared storage: between a check of a path and its use they can put
a symbolic link in the place of a file or of a directory. So each name is opened from
the directory before it, without following links, and the work is done on descriptors.
What is no regular file is not opened at all.
"""

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors

_NO_LINK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclasses.dataclass(frozen=True)
class Place:
    """A file or directory.

    Attributes:
        top: directory that the administrator of this node chose, with its links.
        inside: path below it, empty for the directory itself.
    """

    top: str
    inside: str

    @property
    def path(self) -> str:
        """The path, for people and for what cannot use a descriptor."""
        return f"{self.top}/{self.inside}" if self.inside else self.top

    @contextlib.contextmanager
    def directory(self, *, make_mode: int | None = None) -> Iterator[int]:
        """Hold a descriptor of this directory, with which only names can be reached.

        Args:
            make_mode: mode of the directories that are made, None to make none.

        Raises:
            FileStoragePathError: there is a symbolic link.
            OSError: a directory is missing, or cannot be made.
        """
        fd = os.open(self.top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in self.inside.split("/") if self.inside else ():
                if make_mode is not None:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, make_mode, dir_fd=fd)
                below = self._step(name, fd)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def _step(self, name: str, directory: int) -> int:
        """Open a directory in another one."""
        if name in ("", ".", ".."):
            raise self._refused(f"wanted names, found {name!r} in it")
        fd = os.open(name, _NO_LINK, dir_fd=directory)
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            return fd
        os.close(fd)
        if stat.S_ISLNK(mode):
            raise self._is_link(name)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path)

    @contextlib.contextmanager
    def parent(self, *, make_mode: int | None = None) -> Iterator[tuple[int, str]]:
        """Hold a descriptor of the directory with this name; see `directory`."""
        above, _, name = self.inside.rpartition("/")
        if name in ("", ".", ".."):
            raise self._refused("wanted a path below the directory")
        with Place(self.top, above).directory(make_mode=make_mode) as fd:
            yield fd, name

    def status(self) -> os.stat_result:
        """Return the status of what is there.

        Raises:
            FileStoragePathError: there is a symbolic link.
            OSError: it is missing, or cannot be examined.
        """
        with self.parent() as (fd, name):
            status = os.lstat(name, dir_fd=fd)
        if stat.S_ISLNK(status.st_mode):
            raise self._is_link(name)
        return status

    def open(self, flags: int) -> int:
        """Open a regular file that exists; return the descriptor.

        Raises:
            FileStoragePathError: there is a symbolic link.
            OSError: it is missing, cannot be opened, or is no regular file.
        """
        with self.parent() as (directory, name):
            fd = os.open(name, _NO_LINK, dir_fd=directory)
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISLNK(mode):
                raise self._is_link(name)
            if not stat.S_ISREG(mode):
                raise OSError(
                    errno.EINVAL, "wanted a regular file, found something else"
                )
            # The same file again, whatever has its name by now.
            return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
        finally:
            os.close(fd)

    def _is_link(self, name: str) -> errors.FileStoragePathError:
        return self._refused(
            f"{name} is a symbolic link; below {self.top} none is followed"
        )

    def _refused(self, why: str) -> errors.FileStoragePathError:
        return errors.FileStoragePathError(f"{self.path}: {why}")
