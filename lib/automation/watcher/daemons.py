"""Daemons of this node: check each one, and start those that are down."""

import logging
from typing import Final

from ganeti.automation.watcher.effects import Watch
from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.process import RunResult
from ganeti.base.text.control_chars import escape

_log = logging.getLogger(__name__)
#: Seconds for a check of a pid file.
_CHECK_S: Final = 30.0
#: Seconds for a start; an election of the master takes the longest.
_START_S: Final = 120.0
#: Characters of a failed command's output that the log shows.
_OUTPUT_CHARS: Final = 1000


def ensure(watch: Watch, daemon: str) -> bool:
    """Start a daemon that is installed and does not run; return whether it runs now.

    Under systemd this starts the unit, also if an administrator stopped it: pause the
    watcher or mask the unit to keep a daemon down.

    Raises:
        CommandError: daemon-util cannot be run.
    """
    if not watch.is_installed(daemon):
        _log.debug("%s: not installed", daemon)
        return False
    if is_running(watch, daemon):
        _log.debug("%s: runs", daemon)
        return True
    _log.warning("%s: does not run; starting it", daemon)
    try:
        return start(watch, daemon)
    except errors.OpExecError as err:
        _log.error("%s", err)
        return False


def is_running(watch: Watch, daemon: str) -> bool:
    """Return whether the process of a daemon exists.

    Raises:
        CommandError: daemon-util cannot be run.
    """
    return not watch.daemon_util("check", daemon, timeout_s=_CHECK_S).failed


def start(watch: Watch, daemon: str) -> bool:
    """Start a daemon; return false if it belongs on the master, another node.

    Raises:
        OpExecError: it does not start.
        CommandError: daemon-util cannot be run.
    """
    result = watch.daemon_util("start", daemon, timeout_s=_START_S)
    if result.code == exitcodes.EXIT_NOTMASTER:
        _log.info("%s: not started, this node is not the master", daemon)
        return False
    _check(result, daemon, "start")
    _log.info("%s: started", daemon)
    return True


def restart(watch: Watch, daemon: str) -> None:
    """Stop and start a daemon.

    Raises:
        OpExecError: it does not stop or does not start.
        CommandError: daemon-util cannot be run.
    """
    _check(watch.daemon_util("stop", daemon, timeout_s=_START_S), daemon, "stop")
    start(watch, daemon)


def _check(result: RunResult, daemon: str, verb: str) -> None:
    if result.failed:
        output = escape(result.output.strip()[-_OUTPUT_CHARS:])
        raise errors.OpExecError(
            f"{daemon}: daemon-util {verb} {result.reason}: {output or 'no output'}"
        )
