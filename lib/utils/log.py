"""Set-up of a program's logging: one file, the terminal, syslog, the console.

Only ``main`` functions call this module; all other code logs with
``logging.getLogger(__name__)``.
"""

import logging
import logging.handlers
import os
import sys
from typing import TextIO

from ganeti.utils import control_chars

#: Device that a daemon logs to when its file cannot be written.
CONSOLE = "/dev/console"
SYSLOG_SOCKET = "/dev/log"
_LOG_MODE = 0o600


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
            return
        try:
            self._console.write(
                f"{self.format(record)}\n(this could not be written to the log file)\n"
            )
            self._console.flush()
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


def _open_console() -> TextIO | None:
    try:
        return open(CONSOLE, "w", encoding="utf-8")
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
) -> LogFileHandler | None:
    """Set up the log handlers of this process.

    Args:
        program: name in each line.
        path: log file; its directory must exist. None for no file.
        debug: log at debug level, with the place in the code.
        terminal: log to the error output as well.
        syslog: ``no``, ``yes`` (file and syslog) or ``only`` (no file).
        console: write records that the file refuses to /dev/console.

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
    handler = None
    if path is not None and syslog != "only":
        handler = LogFileHandler(path, console=console)
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
        logging.getLogger(__name__).warning("syslog cannot be reached: %s", err)
        return
    _add(root, handler, text)
