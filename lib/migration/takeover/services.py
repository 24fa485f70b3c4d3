"""Daemons of the other implementation on one node: what starts them, and their end.

Cron is kept from starting the other watcher, and systemd gets the units of this
implementation. Both can be undone.
"""

import contextlib
import os
import time
from collections.abc import Collection
from typing import Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.filesystem import files, pidfile
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner

CRON: Final = "/etc/cron.d/ganeti"
#: Cron skips names with a dot.
_ASIDE: Final = ".before-take-over"
_UNITS: Final = "/etc/systemd/system"
_SYSTEMD: Final = "/run/systemd/system"
#: Daemons of other implementations.
OLD_DAEMONS: Final = (
    "ganeti-noded",
    "ganeti-confd",
    "ganeti-wconfd",
    "ganeti-luxid",
    "ganeti-masterd",
    "ganeti-rapi",
    "ganeti-mond",
    "ganeti-kvmd",
    "ganeti-metad",
)
#: Those that run only while somebody needs them.
_ON_DEMAND: Final = ("ganeti-kvmd", "ganeti-metad")
#: Starts of the other daemons before one that does not run is an error: what an
#: interrupted start has left may be in the way of the next one.
_ATTEMPTS: Final = 3
#: Seconds for a daemon to appear after its start.
_APPEAR_S: Final = 5.0
#: Seconds for the end of all daemons, and of a watcher that is running.
_STOP_S: Final = 120.0
_WATCHER_S: Final = 60.0
_POLL_S: Final = 0.1
_MARK: Final = "# Written by take-over.\n"


def running(paths: Paths) -> list[str]:
    """Return the names of the daemons that run on this node, in the order above."""
    return [name for name in OLD_DAEMONS if _pid(paths, name) is not None]


def _pid(paths: Paths, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        pid = pidfile.pid_in(paths.pid_file(name))
        if name in files.text_of(f"/proc/{pid}/cmdline", files.MAX_PROC):
            return pid
    return None


def run(process: Runner, daemon_util: str, verb: str) -> None:
    """Run a ``daemon-util``.

    Raises:
        OpExecError: it failed.
    """
    result = process.run([daemon_util, verb], timeout_s=_STOP_S)
    if result.failed:
        raise errors.OpExecError(
            f"{daemon_util} {verb} {result.reason}: {_one_line(result.output)}"
        )


def _one_line(output: str) -> str:
    """Return the end of an output as a line: the last one of an error is shown."""
    return " ".join(output.split())[-500:]


def stop_old(paths: Paths, process: Runner, daemon_util: str) -> None:
    """Stop the other daemons, and whatever starts them.

    Raises:
        OpExecError: a daemon, or a watcher that is running, does not end.
    """
    cron = paths.at(CRON)
    if os.path.exists(cron):
        os.replace(cron, cron + _ASIDE)
        files.sync_dir(os.path.dirname(cron))
    _wait_for_watcher()
    run(process, daemon_util, "stop-all")
    left = running(paths)
    if left:
        raise errors.OpExecError(f"{', '.join(left)} did not end")


def start_old(
    paths: Paths, process: Runner, daemon_util: str, wanted: Collection[str]
) -> None:
    """Start the other daemons; return when the wanted ones run.

    What runs decides, if it is known what ran before: an exit code of the other
    ``daemon-util`` says little after an interrupted start.

    Args:
        paths: of this node.
        process: runs the program.
        daemon_util: of the other Ganeti.
        wanted: daemons that ran on this node before, or empty if that is not known.

    Raises:
        OpExecError: a wanted daemon does not run, or nothing is known and it failed.
    """
    lasting = [name for name in wanted if name not in _ON_DEMAND]
    if not lasting:
        run(process, daemon_util, "start-all")
        return
    for _ in range(_ATTEMPTS):
        result = process.run([daemon_util, "start-all"], timeout_s=_STOP_S)
        missing = _wait_for(paths, lasting)
        if not missing and not result.failed:
            return
    if missing:
        verb = "do" if len(missing) > 1 else "does"
        raise errors.OpExecError(
            f"{', '.join(missing)} {verb} not run, and ran before the take-over; see"
            f" the logs of the other Ganeti on this node; {daemon_util} start-all"
            f" {result.reason}: {_one_line(result.output) or 'no output'}"
        )


def _wait_for(paths: Paths, wanted: Collection[str]) -> list[str]:
    """Wait for daemons; return those that do not run."""
    deadline = time.monotonic() + _APPEAR_S
    while True:
        up = running(paths)
        missing = [name for name in wanted if name not in up]
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(_POLL_S)


def _wait_for_watcher() -> None:
    deadline = time.monotonic() + _WATCHER_S
    while pids := _watchers():
        if time.monotonic() > deadline:
            raise errors.OpExecError(
                f"ganeti-watcher (process {pids[0]}) did not end within"
                f" {_WATCHER_S:g} s"
            )
        time.sleep(_POLL_S)


def _watchers() -> list[int]:
    """Return the watchers in this process's PID namespace."""
    pids = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = files.read_start(f"/proc/{entry}/cmdline", files.MAX_PROC)
            words = line.split(b"\0")[:2]
            if any(word.endswith(b"/ganeti-watcher") for word in words):
                pids.append(int(entry))
    return pids


def restore_cron(paths: Paths) -> None:
    """Let cron start the other watcher again."""
    cron = paths.at(CRON)
    if os.path.exists(cron + _ASIDE):
        os.replace(cron + _ASIDE, cron)


def install_units(paths: Paths, process: Runner) -> list[str]:
    """Give systemd the units of this installation; return the names of the units.

    They take precedence over units of a package with the same names. Units of daemons
    that this installation lacks are masked. Does nothing without systemd, or if
    systemd knows no units of Ganeti.

    Raises:
        OpExecError: systemd does not read them.
    """
    if paths.is_virtual or not os.path.isdir(_SYSTEMD):
        return []
    if process.run(["systemctl", "cat", "ganeti.target"]).failed:
        return []
    source = os.path.join(_buildconf.PREFIX, "lib/systemd/system")
    own = [name for name in _names(source) if name.startswith("ganeti")]
    for name in own:
        text = _MARK.encode() + files.read_file(os.path.join(source, name))
        files.write_file(os.path.join(_UNITS, name), text, mode=0o644)
    masked = [f"{name}.service" for name in OLD_DAEMONS]
    masked = [name for name in masked if name not in own]
    for name in masked:
        path = os.path.join(_UNITS, name)
        files.remove_file(path)
        os.symlink(os.devnull, path)
    _reload(process)
    return [*own, *masked]


def remove_units(process: Runner, names: list[str]) -> None:
    """Remove units that `install_units` has written."""
    for name in names:
        files.remove_file(os.path.join(_UNITS, os.path.basename(name)))
    if names:
        _reload(process)


def _reload(process: Runner) -> None:
    result = process.run(["systemctl", "daemon-reload"], timeout_s=_STOP_S)
    if result.failed:
        raise errors.OpExecError(f"systemctl daemon-reload: {result.output.strip()}")


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
