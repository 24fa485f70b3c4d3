"""Files of one group: its state, and the status of its instances for other programs."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.decisions.watching import group_state as records

_log = logging.getLogger(__name__)
#: Seconds to wait for another process that merges the status files.
_MERGE_S: Final = 10.0
#: Bytes; a state with 20,000 instances in trouble has 3 MB.
_MAX_STATE: Final = 64 << 20
#: The merged file is for monitoring by other users.
_MERGED_MODE: Final = 0o644
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def state_path(paths: Paths, group: str) -> str:
    """Return the state file of a group."""
    return paths.data(f"watcher.{group}.data")


def status_path(paths: Paths, group: str) -> str:
    """Return the file with the status of a group's instances."""
    return paths.data(f"watcher.{group}.instance-status")


def merged_path(paths: Paths) -> str:
    """Return the file with the status of all instances."""
    return f"{paths.run_dir}/instance-status"


class StateFile:
    """The state of a group, locked against other runs; use `opened`."""

    def __init__(self, paths: Paths, group: str, fd: int) -> None:
        self._paths, self._group = paths, group
        self._path = state_path(paths, group)
        self._fds = [fd]
        self.state = self._load()

    def _load(self) -> records.GroupState:
        data = os.pread(self._fds[0], _MAX_STATE, 0)
        try:
            return records.parse(data)
        except errors.ParseError as err:
            _log.warning("%s: %s; beginning with an empty state", self._path, err)
            return records.EMPTY

    def save(self, state: records.GroupState) -> None:
        """Replace the state durably; only touch the file if it is unchanged.

        Raises:
            OSError: the file cannot be written.
        """
        if state == self.state:
            os.utime(self._path)
            return
        temporary = f"{self._path}.new"
        fd = os.open(temporary, _OPEN, 0o600)
        # The new file is locked before others can open it under its name.
        self._fds.append(fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            os.ftruncate(fd, 0)
            with open(fd, "wb", closefd=False) as stream:
                stream.write(records.to_json(state))
            os.fsync(fd)
        except OSError as err:
            err.filename = temporary
            raise
        os.rename(temporary, self._path)
        files.sync_dir(os.path.dirname(self._path))
        self.state = state

    def publish(self, statuses: Mapping[str, str], groups: Collection[str]) -> None:
        """Write the status of each instance, see `write_status`."""
        write_status(self._paths, self._group, statuses, groups)

    def close(self) -> None:
        """Release the lock."""
        while self._fds:
            os.close(self._fds.pop())


@contextlib.contextmanager
def opened(paths: Paths, group: str) -> Iterator[StateFile]:
    """Lock the state of a group during a block.

    Raises:
        LockError: another run holds the lock.
        OSError: the file cannot be opened.
    """
    file = StateFile(paths, group, _open_locked(state_path(paths, group)))
    try:
        yield file
    finally:
        file.close()


def _open_locked(path: str) -> int:
    """Return a locked descriptor of the file that has this name now."""
    while True:
        fd = os.open(path, _OPEN, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise errors.LockError(
                f"{path}: locked; another watcher works on this group"
            ) from None
        # Its owner may have replaced the file between open and lock.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                return fd
        os.close(fd)


def write_status(
    paths: Paths, group: str, statuses: Mapping[str, str], groups: Collection[str]
) -> None:
    """Write the status of a group's instances and merge the files of all groups.

    Args:
        paths: of this node.
        group: uuid.
        statuses: instance name -> status word.
        groups: uuids of all groups.
    """
    text = "\n".join(f"{name} {status}" for name, status in sorted(statuses.items()))
    files.write_file(status_path(paths, group), text)
    try:
        with files.locked(f"{merged_path(paths)}.lock", timeout_s=_MERGE_S):
            merged = _merged(paths, groups)
            files.write_file(merged_path(paths), merged, mode=_MERGED_MODE)
    except errors.LockError as err:
        _log.warning("the status of all instances is not updated: %s", err)


def _merged(paths: Paths, groups: Collection[str]) -> str:
    """Return the lines of all groups; the newest file with an instance counts."""
    dated = []
    for group in groups:
        path = status_path(paths, group)
        with contextlib.suppress(FileNotFoundError):
            dated.append((os.stat(path).st_mtime_ns, path))
    lines: dict[str, str] = {}
    for _when, path in sorted(dated):
        with contextlib.suppress(FileNotFoundError):
            for line in files.read_file(path).decode().splitlines():
                name, _blank, status = line.partition(" ")
                lines[name] = status
    return "".join(f"{name} {status}\n" for name, status in sorted(lines.items()))
