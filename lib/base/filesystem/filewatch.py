"""Wait for changes in directories, by inotify."""

import os
import select
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from ganeti.base import errors


def changes(directories: Sequence[str]) -> Iterator[str]:
    """Yield the path of each entry that appears or changes in some directories.

    Blocks between changes. An empty text is the first item, when all watches are set:
    the caller must check for earlier changes. An overflow of the kernel's queue yields
    an empty text again.

    Raises:
        InotifyError: a directory cannot be watched.
    """
    pyinotify = _module()
    manager = pyinotify.WatchManager()
    pending: list[str] = []
    notifier = pyinotify.Notifier(manager, lambda event: pending.append(_path(event)))
    try:
        for directory in directories:
            _add_watch(manager, directory)
        yield ""
        while True:
            if notifier.check_events(None):
                notifier.read_events()
                notifier.process_events()
            while pending:
                yield pending.pop(0)
    finally:
        notifier.stop()


def _add_watch(manager: Any, directory: str, further: int = 0) -> None:
    """Watch entries that appear or change, and further events. Raises InotifyError."""
    pyinotify = _module()
    mask = (
        pyinotify.IN_CREATE
        | pyinotify.IN_MOVED_TO
        | pyinotify.IN_CLOSE_WRITE
        | pyinotify.IN_MODIFY
        | pyinotify.IN_Q_OVERFLOW
        | further
    )
    if manager.add_watch(directory, mask, quiet=True).get(directory, -1) < 0:
        raise errors.InotifyError(f"{directory}: cannot be watched")


def _path(event: Any) -> str:
    name = getattr(event, "name", "")
    return os.path.join(event.path, name) if name else ""


def _module() -> Any:
    with warnings.catch_warnings():
        # It imports asyncore, which Python 3.11 warns about; that part is not used.
        warnings.simplefilter("ignore", DeprecationWarning)
        import pyinotify
    return pyinotify


class DirectoryWatch:
    """Names of the entries of one directory that change, for a loop with a selector."""

    def __init__(self, directory: str) -> None:
        """Watch a directory.

        Raises:
            InotifyError: it cannot be watched.
        """
        pyinotify = _module()
        self._manager = pyinotify.WatchManager()
        self._names: set[str] = set()
        self._notifier = pyinotify.Notifier(self._manager, self._note, timeout=0)
        try:
            further = (
                pyinotify.IN_DELETE
                | pyinotify.IN_ATTRIB
                | pyinotify.IN_DELETE_SELF
                | pyinotify.IN_MOVE_SELF
            )
            _add_watch(self._manager, directory, further)
        except errors.InotifyError:
            self.close()
            raise
        self._poll = select.poll()
        self._poll.register(self.fileno(), select.POLLIN)

    def _note(self, event: Any) -> None:
        self._names.add(getattr(event, "name", "") or "")

    def fileno(self) -> int:
        """Return a descriptor that is readable when entries have changed."""
        return int(self._manager.get_fd())

    def has_news(self) -> bool:
        """Return whether `take` would return names."""
        return bool(self._poll.poll(0))

    def take(self) -> set[str]:
        """Return the names since the last call; does not block.

        The empty text stands for the directory itself, which may have been removed or
        replaced, or for lost notifications.
        """
        if self.has_news():
            self._notifier.read_events()
            self._notifier.process_events()
        names, self._names = self._names, set()
        return names

    def close(self) -> None:
        """Watch no longer."""
        self._notifier.stop()
