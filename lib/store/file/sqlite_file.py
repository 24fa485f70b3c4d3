"""Creation, state and failures of SQLite files."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files

FILE_MODE: Final = 0o640
#: SQLite's primary error codes for a file whose contents are wrong.
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


@contextlib.contextmanager
def damage_of(path: str) -> Iterator[None]:
    """Turn SQLite's errors about damage into a ConfigurationError about a file."""
    try:
        yield
    except sqlite3.Error as err:
        if _is_damage(err):
            raise errors.ConfigurationError(f"{path}: damaged: {err}") from err
        raise


@contextlib.contextmanager
def decoding(path: str) -> Iterator[None]:
    """Name the file in errors about records that cannot be decoded.

    Raises:
        ConfigurationError: a record of the file cannot be read.
    """
    try:
        yield
    except errors.ConfigurationError as err:
        raise errors.ConfigurationError(f"{path}: damaged: {err}") from err


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours.

    Raises:
        ConfigurationError: the file is damaged.
        StorageError: the disk failed.
    """
    try:
        with damage_of(path):
            yield
    except sqlite3.Error as err:
        raise errors.StorageError(f"{path}: {err}") from err
    except (OSError, UnicodeDecodeError) as err:
        raise errors.StorageError(f"{path}: {err}") from err


def make_file(path: str) -> None:
    """Make the file unless it is there.

    Its group may read it, whatever the umask: that of the directory, so that an
    administrator decides who follows the store. SQLite gives the companions of the file
    the same mode and group.

    One that is there stays closed: closing it would end all locks that this process
    has on it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        return
    try:
        with contextlib.suppress(PermissionError):
            os.fchown(fd, -1, os.stat(os.path.dirname(path) or ".").st_gid)
        os.fchmod(fd, FILE_MODE)
    finally:
        os.close(fd)


def remove_file(path: str) -> None:
    """Remove a file with its companions, if it is there.

    The companions go first: a log without its file would be read into the next file of
    that name.
    """
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def set_aside(path: str, aside: str) -> None:
    """Give a file and its companions another name, in place of what has that name.

    Raises:
        OSError: the directory cannot be written.
    """
    remove_file(aside)
    # The companions go last: without them, the newest commits of the file are lost.
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")


def state_of(path: str) -> tuple[int, ...] | None:
    """Return what changes when a file is written or replaced, None if it is gone."""
    try:
        return files.version(path)
    except OSError:
        return None
