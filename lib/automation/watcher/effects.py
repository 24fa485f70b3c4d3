"""Settings and effect interfaces of one run, opened by ``main``."""

import dataclasses
import os
from collections.abc import Callable

from ganeti.base.clock import Clock
from ganeti.base.filesystem import disabled_daemons
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, RunResult
from ganeti.node.services import environment
from ganeti.protocols import luxi
from ganeti.protocols.ssconf import SimpleStore


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
