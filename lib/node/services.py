"""Start and stop of daemons on this node, with daemon-util."""

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from ganeti.base import daemon_users, errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import disabled_daemons
from ganeti.base.pathutils import HOSTNAME_ENV, ROOTDIR_ENV, Paths
from ganeti.base.process import SAFE_PATH, Runner

#: Longest time for daemons to become ready or to stop.
_TIMEOUT_S: Final = 90.0
#: Longest time until a master daemon is elected: it asks silent nodes repeatedly.
_ELECTION_S: Final = 300.0


class Services:
    """The daemons of this node. Every method raises OpExecError on failure."""

    def __init__(self, paths: Paths, process: Runner) -> None:
        self._paths = paths
        self._process = process

    def has(self, daemon: str) -> bool:
        """Return whether a daemon is installed on this node and may run there."""
        if daemon in disabled_daemons.names(self._paths):
            return False
        return os.access(os.path.join(self._paths.daemons_dir, daemon), os.X_OK)

    def user_problems(self) -> Iterator[str]:
        """Yield why daemons of this node could not start with users of their own."""
        for name in daemon_users.daemons():
            obstacle = daemon_users.obstacle(name, self._paths)
            allowed = "--allow-root" in disabled_daemons.arguments(self._paths, name)
            if obstacle and not allowed and self.has(name):
                yield (
                    f"{name} would not start: {obstacle}; or let it run as root, with"
                    f' {disabled_daemons.arguments_name(name)}="--allow-root" in'
                    f" {disabled_daemons.DEFAULTS}"
                )

    def check_users(self) -> None:
        """Refuse a machine with `user_problems`, before anything is changed.

        Raises:
            OpPrereqError: the daemons of a cluster could not start here.
        """
        if problems := list(self.user_problems()):
            raise errors.OpPrereqError(
                f"node {self._paths.hostname}: {'; '.join(problems)}",
                ecodes.ECODE_ENVIRON,
            )

    def start(self, daemon: str, *arguments: str) -> None:
        """Start a daemon; return when it is ready."""
        self._run("start", daemon, *arguments)

    def stop(self, daemon: str) -> None:
        """Stop a daemon."""
        self._run("stop", daemon)

    def start_master(
        self, *arguments: str, silent: Collection[str] = frozenset()
    ) -> None:
        """Start the daemons of the master role.

        Args:
            arguments: further options of the master daemon, for this start alone.
            silent: UUIDs of nodes that have just not answered; the daemons that have
                the nodes vote do not wait for these if the others decide.
        """
        skip = ("--not-answering", ",".join(sorted(silent))) if silent else ()
        extra = {
            "EXTRA_MASTERD_ARGS": " ".join((*arguments, *skip)),
            "EXTRA_MAINTD_ARGS": " ".join(skip),
        }
        extra = {name: value for name, value in extra.items() if value}
        self._run("start-master", env=extra, timeout_s=_ELECTION_S)

    def stop_master(self) -> None:
        """Stop the daemons of the master role."""
        self._run("stop-master")

    def start_all(self) -> None:
        """Start all daemons of this node's role."""
        self._run("start-all")

    def stop_all(self) -> None:
        """Stop all daemons."""
        self._run("stop-all")

    def reload_sshd(self) -> None:
        """Let the SSH server reload its host keys; return when it is ready again."""
        self._run("reload-ssh-keys")

    def _run(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        program = self._paths.daemon_util
        full = {**environment(self._paths), **(env or {})}
        result = self._process.run([program, *words], env=full, timeout_s=timeout_s)
        if result.failed:
            raise errors.OpExecError(
                f"node {self._paths.hostname}: daemon-util {' '.join(words)}"
                f" {result.reason}: {result.output.strip()}"
            )


def environment(paths: Paths) -> dict[str, str]:
    """Return the environment of programs on this node."""
    env = {"PATH": SAFE_PATH, "LC_ALL": "C.UTF-8"}
    if paths.is_virtual:
        env |= {ROOTDIR_ENV: paths.root, HOSTNAME_ENV: paths.hostname}
    return env
