"""Set-up of a program's logging: one file, the terminal, syslog, the console.

Only ``main`` functions call this module; all other code logs with
``logging.getLogger(__name__)``.
"""

import functools
import logging
import logging.handlers
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TextIO

from ganeti.base.text import control_chars

_log = logging.getLogger(__name__)

#: Device that a daemon logs to when its file cannot be written.
CONSOLE = "/dev/console"
SYSLOG_SOCKET = "/dev/log"
_LOG_MODE = 0o600
#: Records that wait while the disk of the log does not answer; later ones are lost.
_WAITING_RECORDS: Final = 5000
#: Seconds after which a write has to be regarded as hung.
_HUNG_S: Final = 5.0
#: Seconds that the end of the program waits for the log to be written.
_CLOSE_S: Final = 2.0


class Reopenable(Protocol):
    """A handler of a file that log rotation may rename."""

    def reopen(self) -> None:
        """Open the file again."""


class LogFileHandler(logging.FileHandler):
    """Handler of a file that can be reopened, with the console as a fallback.

    The console is opened at set-up: when the disk has failed, opening it may fail.
    """

    def __init__(self, path: str, *, console: bool = False) -> None:
        self._console: TextIO | None = _open_console() if console else None
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        os.chmod(path, _LOG_MODE)

    def reopen(self) -> None:
        """Open the file again, after a log rotation has renamed the old file."""
        self.acquire()
        try:
            old, self.stream = self.stream, self._open()
            if old is not None:
                old.close()
        finally:
            self.release()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Write a record to the console when the file refused it."""
        if self._console is None:
            super().handleError(record)
        else:
            self.write_to_console(self.format(record))

    def write_to_console(self, text: str) -> None:
        """Write a line that the file does not take to the console, if there is one."""
        console = self._console
        if console is None:
            return
        try:
            console.write(f"{text}\n(this could not be written to the log file)\n")
            console.flush()
        except OSError:
            # Neither disk nor console works: the record is lost.
            self._console = None

    def close(self) -> None:
        """Close the file and the console."""
        try:
            super().close()
        finally:
            if self._console is not None:
                self._console.close()
                self._console = None


class BackgroundHandler(logging.handlers.QueueHandler):
    """Writes records to a log file in a thread of its own.

    A disk that hangs blocks whoever writes to it, and all who wait for that writer:
    none of the threads that do the work. While a write hangs, records go to the
    console, too, and those that the queue has no room for are lost.
    """

    def __init__(self, target: LogFileHandler) -> None:
        self._work: queue.Queue[Callable[[], object] | None] = queue.Queue(
            _WAITING_RECORDS
        )
        super().__init__(self._work)
        self._target = target
        #: When the write that is under way began.
        self._since: float | None = None
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def setFormatter(self, fmt: logging.Formatter | None) -> None:  # noqa: N802
        """Set the formatter of the lines in the file."""
        self._target.setFormatter(fmt)

    def enqueue(self, record: logging.LogRecord) -> None:
        """Leave a record to the thread that writes."""
        since = self._since
        if since is not None and time.monotonic() - since > _HUNG_S:
            self._target.write_to_console(self._target.format(record))
        self._put(functools.partial(self._target.handle, record))

    def reopen(self) -> None:
        """Open the file again, after the records that wait."""
        self._put(self._target.reopen)

    def close(self) -> None:
        """Write what waits, if the disk answers, and close the file."""
        self._put(None)
        self._thread.join(_CLOSE_S)
        super().close()

    def _put(self, work: Callable[[], object] | None) -> None:
        try:
            self._work.put_nowait(work)
        except queue.Full:
            self._lost += 1

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            self._since = time.monotonic()
            try:
                work()
            except OSError as err:
                _log.error("cannot reopen the log file: %s", err.strerror)
            self._since = None
            if lost := self._lost:
                self._lost -= lost
                _log.warning("the disk did not take %d records of the log", lost)
        self._target.close()


def _open_console() -> TextIO | None:
    try:
        # A console that takes nothing must not block a thread either.
        fd = os.open(CONSOLE, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        return open(fd, "w", encoding="utf-8")
    except OSError:
        return None


def set_up(
    program: str,
    path: str | None,
    *,
    debug: bool = False,
    terminal: bool = False,
    syslog: str = "no",
    console: bool = False,
) -> Reopenable | None:
    """Set up the log handlers of this process.

    Args:
        program: name in each line.
        path: log file; its directory must exist. None for no file.
        debug: log at debug level, with the place in the code.
        terminal: log to the error output as well.
        syslog: ``no``, ``yes`` (file and syslog) or ``only`` (no file).
        console: write records that the file does not take to /dev/console, and let no
            thread but one wait for the disk.

    Returns:
        The handler of the file, to be reopened on SIGHUP.

    Raises:
        OSError: the file cannot be opened, or syslog if it is the only target.
    """
    root = logging.getLogger()
    shut_down()
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    where = " %(module)s:%(lineno)d" if debug else ""
    text = f"{program} pid=%(process)d/%(threadName)s{where} %(levelname)s %(message)s"
    handler: LogFileHandler | BackgroundHandler | None = None
    if path is not None and syslog != "only":
        file = LogFileHandler(path, console=console)
        handler = BackgroundHandler(file) if console else file
        _add(root, handler, f"%(asctime)s: {text}")
    if terminal:
        _add(root, logging.StreamHandler(sys.stderr), f"%(asctime)s: {text}")
    if syslog != "no":
        _add_syslog(root, f"{text}", required=syslog == "only")
    return handler


def shut_down() -> None:
    """Close and remove all handlers of the process."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()


class _Formatter(logging.Formatter):
    """A formatter that replaces control characters: texts of nodes get into logs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return control_chars.replace(super().format(record))


def _add(root: logging.Logger, handler: logging.Handler, text: str) -> None:
    handler.setFormatter(_Formatter(text))
    root.addHandler(handler)


def _add_syslog(root: logging.Logger, text: str, *, required: bool) -> None:
    try:
        # The handler itself does not report a missing socket.
        os.stat(SYSLOG_SOCKET)
        handler = logging.handlers.SysLogHandler(
            SYSLOG_SOCKET, facility=logging.handlers.SysLogHandler.LOG_DAEMON
        )
    except OSError as err:
        if required:
            raise
        _log.warning("syslog cannot be reached: %s", err)
        return
    _add(root, handler, text)
