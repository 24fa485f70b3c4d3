"""Daemons of this node: check each one, and start those that are down."""

import logging
from typing import Final

from ganeti.constants import exitcodes
from ganeti.utils.control_chars import escape
from ganeti.watcher.effects import Watch

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
    if not watch.daemon_util("check", daemon, timeout_s=_CHECK_S).failed:
        _log.debug("%s: runs", daemon)
        return True
    _log.warning("%s: does not run; starting it", daemon)
    return start(watch, daemon)


def start(watch: Watch, daemon: str) -> bool:
    """Start a daemon; return whether it runs now.

    Raises:
        CommandError: daemon-util cannot be run.
    """
    result = watch.daemon_util("start", daemon, timeout_s=_START_S)
    if result.code == exitcodes.EXIT_NOTMASTER:
        _log.info("%s: not started, this node is not the master", daemon)
        return False
    if result.failed:
        output = escape(result.output.strip()[-_OUTPUT_CHARS:])
        _log.error("%s: the start %s: %s", daemon, result.reason, output)
        return False
    _log.info("%s: started", daemon)
    return True


def restart(watch: Watch, daemon: str) -> bool:
    """Stop and start a daemon; return whether it runs now.

    Raises:
        CommandError: daemon-util cannot be run.
    """
    result = watch.daemon_util("stop", daemon, timeout_s=_START_S)
    if result.failed:
        output = escape(result.output.strip()[-_OUTPUT_CHARS:])
        _log.error("%s: the stop %s: %s", daemon, result.reason, output)
    return start(watch, daemon)
