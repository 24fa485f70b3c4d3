"""Settings and effect interfaces of a run, opened by ``main``; daemons of its node."""

import dataclasses
import logging
import os
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import exitcodes
from ganeti.base.filesystem import disabled_daemons
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, RunResult
from ganeti.base.text.control_chars import escape
from ganeti.node.services import environment
from ganeti.protocols import luxi
from ganeti.protocols.ssconf import SimpleStore

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Options of the command line.

    Attributes:
        debug: log more, also to the error output.
        job_age_s: age of the jobs that are archived, in seconds.
        ignore_pause: work also during a pause.
        wait_children: wait until the work on all groups has ended.
        verify_disks: check the disks of the groups.
        strict: the check of disks waits for all locks.
        rapi_ip: address at which RAPI is probed; None for the one that it is bound to.
    """

    debug: bool = False
    job_age_s: int = 6 * 3600
    ignore_pause: bool = False
    wait_children: bool = True
    verify_disks: bool = True
    strict: bool = True
    rapi_ip: str | None = None


@dataclasses.dataclass(frozen=True)
class Watch:
    """Settings, paths and effect interfaces of one run."""

    settings: Settings
    paths: Paths
    process: Runner
    clock: Clock
    connect: Callable[[], luxi.Client]

    @property
    def ssconf(self) -> SimpleStore:
        """Return the reader of this node's ssconf files."""
        return SimpleStore(self.paths)

    def is_installed(self, daemon: str) -> bool:
        """Return whether a daemon is installed on this node and may run there."""
        if daemon in disabled_daemons.names(self.paths):
            return False
        return os.access(f"{self.paths.daemons_dir}/{daemon}", os.X_OK)

    def daemon_util(self, *words: str, timeout_s: float) -> RunResult:
        """Run daemon-util.

        Raises:
            CommandError: it cannot be run.
        """
        return self.process.run(
            [self.paths.daemon_util, *words],
            env=environment(self.paths),
            timeout_s=timeout_s,
        )


#: Seconds for a check of a pid file.
_CHECK_S: Final = 30.0
#: Seconds for a start; an election of the master takes the longest.
_START_S: Final = 120.0
#: Characters of a failed command's output that the log shows.
_OUTPUT_CHARS: Final = 1000


def ensure_daemon(watch: Watch, daemon: str) -> bool:
    """Start a daemon that is installed and does not run; return whether it runs now.

    Under systemd this starts the unit, also if an administrator stopped it: pause the
    watcher or mask the unit to keep a daemon down.

    Raises:
        CommandError: daemon-util cannot be run.
    """
    if not watch.is_installed(daemon):
        _log.debug("%s: not installed", daemon)
        return False
    if is_daemon_running(watch, daemon):
        _log.debug("%s: runs", daemon)
        return True
    _log.warning("%s: does not run; starting it", daemon)
    try:
        return start_daemon(watch, daemon)
    except errors.OpExecError as err:
        _log.error("%s", err)
        return False


def is_daemon_running(watch: Watch, daemon: str) -> bool:
    """Return whether the process of a daemon exists.

    Raises:
        CommandError: daemon-util cannot be run.
    """
    return not watch.daemon_util("check", daemon, timeout_s=_CHECK_S).failed


def start_daemon(watch: Watch, daemon: str) -> bool:
    """Start a daemon; return false if it belongs on the master, another node.

    Raises:
        OpExecError: it does not start.
        CommandError: daemon-util cannot be run.
    """
    result = watch.daemon_util("start", daemon, timeout_s=_START_S)
    if result.code == exitcodes.EXIT_NOTMASTER:
        _log.info("%s: not started, this node is not the master", daemon)
        return False
    _check_command(result, daemon, "start")
    _log.info("%s: started", daemon)
    return True


def restart_daemon(watch: Watch, daemon: str) -> None:
    """Stop and start a daemon.

    Raises:
        OpExecError: it does not stop or does not start.
        CommandError: daemon-util cannot be run.
    """
    _check_command(
        watch.daemon_util("stop", daemon, timeout_s=_START_S), daemon, "stop"
    )
    start_daemon(watch, daemon)


def _check_command(result: RunResult, daemon: str, verb: str) -> None:
    if result.failed:
        output = escape(result.output.strip()[-_OUTPUT_CHARS:])
        raise errors.OpExecError(
            f"{daemon}: daemon-util {verb} {result.reason}: {output or 'no output'}"
        )
