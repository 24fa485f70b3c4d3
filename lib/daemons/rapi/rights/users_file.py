"""The users file on disk: read when it changes, with inotify."""

import logging
import os
import selectors
import threading
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files, filewatch
from ganeti.daemons.rapi.rights import users

_log = logging.getLogger(__name__)

#: Largest file, in bytes.
_MAX_SIZE: Final = 16 << 20
#: Seconds between attempts to watch a directory that is missing.
_RETRY_S: Final = 5.0


def read(path: str) -> users.Users | None:
    """Return the content of a users file; one that is missing has no users.

    Returns:
        None if the file cannot be read: the last content counts.
    """
    try:
        text = files.read_file(path, max_size=_MAX_SIZE).decode()
    except FileNotFoundError:
        return users.Users()
    except (OSError, UnicodeDecodeError, errors.GenericError) as err:
        _log.error("%s: cannot be read, the last content counts: %s", path, err)
        return None
    content = users.parse(text)
    for problem in content.problems:
        _log.warning("%s: %s", path, problem)
    return content


class WatchedUsers:
    """Passes the content of a users file to a function now and after each change."""

    def __init__(self, path: str, use: Callable[[users.Users], None]) -> None:
        """Read the file once; `start` follows it.

        Args:
            path: the file, which need not exist.
            use: takes the content.
        """
        self._path = path
        self._use = use
        self._waker, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._follow, name="users", daemon=True)
        self._is_stopping = False
        self._load()

    def start(self) -> None:
        """Follow the file from a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Follow the file no longer."""
        self._is_stopping = True
        os.write(self._wake, b"\0")
        self._thread.join()
        os.close(self._waker)
        os.close(self._wake)

    def _load(self) -> None:
        content = read(self._path)
        if content is not None:
            self._use(content)
            count = len(content.by_name) + len(content.by_digest)
            _log.info("%s: %d users and tokens", self._path, count)

    def _follow(self) -> None:
        while not self._is_stopping:
            try:
                watch = filewatch.DirectoryWatch(os.path.dirname(self._path))
            except errors.InotifyError as err:
                _log.warning("changes of users are not noticed: %s", err)
                self._wait(None, _RETRY_S)
                continue
            try:
                # The file may have changed before the watch began.
                self._load()
                self._follow_directory(watch)
            finally:
                watch.close()

    def _follow_directory(self, watch: filewatch.DirectoryWatch) -> None:
        """Load the file after each change; return if its directory may be another."""
        name = os.path.basename(self._path)
        while not self._is_stopping:
            self._wait(watch, None)
            changed = watch.take()
            if name in changed or "" in changed:
                self._load()
            if "" in changed:
                return

    def _wait(
        self, watch: filewatch.DirectoryWatch | None, timeout_s: float | None
    ) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._waker, selectors.EVENT_READ)
            if watch is not None:
                selector.register(watch, selectors.EVENT_READ)
            selector.select(timeout_s)
