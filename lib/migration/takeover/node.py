"""``take-over-node``: one step of a take-over on one node, for ``take-over``.

Runs on each node over SSH, with the step on its input, and prints what it found as one
JSON object. Each step can be repeated.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, SystemRunner
from ganeti.migration.takeover import kept, runtimes, services
from ganeti.node.hypervisor.kvm import files as kvm_files
from ganeti.node.services import Services
from ganeti.protocols.ssconf import SimpleStore
from ganeti.store.file import sqlite_file
from ganeti.tools import common

NAME: Final = "take-over-node"
#: Seconds to wait for the end of another step: daemons may take long to start.
_TURN_S: Final = 300.0
_INPUT: Final[dict[str, common.Check]] = {
    "step": common.is_text,
    "daemon_util": common.is_text,
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer.

    Attributes:
        release: of this implementation on the node.
        running: daemons that run there.
        guests: name of each running KVM guest -> its process id.
        problems: reasons against a take-over of the node.
        names: what the step changed, such as guests with a converted runtime file.
    """

    release: str = ""
    running: tuple[str, ...] = ()
    guests: dict[str, int] = {}
    problems: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def main() -> int:
    """Run the tool."""

    def act(paths: Paths, message: Mapping[str, Any], dry_run: bool) -> None:
        if not dry_run:
            report = run_step(paths, SystemRunner(), message)
            sys.stdout.write(msgspec.json.encode(report).decode() + "\n")

    return common.run_with_message(
        NAME, "Runs one step of a take-over on this node.", _INPUT, act
    )


def state_dir(paths: Paths) -> str:
    """Return the directory with the state of a take-over on a node."""
    return paths.data("take-over")


def run_step(paths: Paths, process: Runner, message: Mapping[str, Any]) -> Report:
    """Run one step on this node.

    Args:
        paths: of this node.
        process: runs daemons' programs.
        message: ``step``, a key of `STEPS`; ``daemon_util`` of the other Ganeti.

    Raises:
        OpPrereqError: the step is unknown, or a key is missing.
        GenericError: the step failed; it can be repeated.
    """
    step, daemon_util = STEPS.get(message.get("step", "")), message.get("daemon_util")
    if step is None or not daemon_util or not os.path.isabs(daemon_util):
        raise errors.OpPrereqError(
            f"input: wanted a step ({', '.join(STEPS)}) and the path daemon_util",
            ecodes.ECODE_INVAL,
        )
    # A step whose caller was killed may still run here.
    lock = f"{paths.lock_dir}/{NAME}.lock"
    with files.locked(lock, timeout_s=_TURN_S):
        names = step(paths, process, daemon_util)
    return Report(
        release=_buildconf.RELEASE_VERSION,
        running=tuple(services.running(paths)),
        guests=guests(paths),
        problems=tuple(_problems(paths, process, daemon_util) if step is _look else ()),
        names=tuple(names),
    )


def guests(paths: Paths) -> dict[str, int]:
    """Return the process ids of the running KVM guests of this node by name."""
    pids = {}
    for name in kvm_files.known_names(paths):
        with contextlib.suppress(errors.HypervisorError):
            pid = kvm_files.Files(paths, name).alive_pid()
            if pid is not None:
                pids[name] = pid
    return pids


def _problems(paths: Paths, process: Runner, daemon_util: str) -> list[str]:
    problems = []
    if not os.access(daemon_util, os.X_OK):
        problems.append(
            f"{daemon_util} is missing: the other Ganeti must stay installed, for the"
            " way back"
        )
    elif os.path.realpath(daemon_util) == os.path.realpath(paths.daemon_util):
        problems.append(
            f"{daemon_util} belongs to this implementation; install it below a"
            " directory of its own, beside the other Ganeti"
        )
    if os.geteuid() != 0:
        problems.append("must run as root")
    problems += Services(paths, process).user_problems()
    for name in runtimes.names(paths):
        try:
            runtimes.convert(
                paths, name, files.read_file(runtimes.path_of(paths, name))
            )
        except errors.HypervisorError as err:
            problems.append(str(err))
    return problems


def _look(_paths: Paths, _process: Runner, _daemon_util: str) -> list[str]:
    """Report the state of this node; change nothing."""
    return []


def _stop(paths: Paths, process: Runner, daemon_util: str) -> list[str]:
    """Stop the other daemons, and whatever starts them."""
    files.make_dir(state_dir(paths), 0o700)
    record = _daemons_record(paths)
    # After an interruption some have ended already, so the first list is complete.
    if not os.path.exists(record):
        up = msgspec.json.encode(services.running(paths))
        files.write_file(record, up, mode=0o600)
    services.stop_old(paths, process, daemon_util)
    return []


def _daemons_record(paths: Paths) -> str:
    """Return the path of the list of the other daemons that ran on this node."""
    return f"{state_dir(paths)}/daemons.json"


def _keep(paths: Paths, _process: Runner, _daemon_util: str) -> list[str]:
    """Keep the owners and modes of the files."""
    files.make_dir(state_dir(paths), 0o700)
    kept.keep(paths, f"{state_dir(paths)}/owners.json")
    return []


def _convert(paths: Paths, _process: Runner, _daemon_util: str) -> list[str]:
    """Convert the runtime files of guests."""
    return runtimes.convert_all(paths, f"{state_dir(paths)}/runtime")


def _start(paths: Paths, process: Runner, _daemon_util: str) -> list[str]:
    """Start the daemons of this implementation."""
    units = services.install_units(paths, process)
    record = f"{state_dir(paths)}/units.json"
    # A repeated start finds its own units, so the first list is complete.
    if units and not os.path.exists(record):
        files.write_file(record, msgspec.json.encode(units), mode=0o600)
    Services(paths, process).start_all()
    return []


def _halt(paths: Paths, process: Runner, _daemon_util: str) -> list[str]:
    """Stop the daemons of this implementation."""
    Services(paths, process).stop_all()
    return []


def _restore(paths: Paths, process: Runner, _daemon_util: str) -> list[str]:
    """Put back what the other implementation needs."""
    with contextlib.suppress(FileNotFoundError):
        text = files.read_file(f"{state_dir(paths)}/units.json")
        services.remove_units(process, msgspec.json.decode(text, type=list[str]))
    restored = runtimes.restore_all(paths, f"{state_dir(paths)}/runtime")
    sqlite_file.remove_file(paths.store_db)
    kept.restore(paths, f"{state_dir(paths)}/owners.json")
    return restored


def _start_old(paths: Paths, process: Runner, daemon_util: str) -> list[str]:
    """Start the other daemons, and let cron start their watcher."""
    services.start_old(paths, process, daemon_util, _wanted(paths))
    services.restore_cron(paths)
    return []


def _wanted(paths: Paths) -> list[str]:
    """Return the other daemons that ran on this node and belong to its role now."""
    try:
        text = files.read_file(_daemons_record(paths))
    except FileNotFoundError:  # an earlier release has stopped them
        return []
    names = msgspec.json.decode(text, type=list[str])
    confd = "ganeti-confd"
    if confd in names and paths.hostname not in SimpleStore(paths).master_candidates():
        names.remove(confd)
    return names


def _forget(paths: Paths, _process: Runner, _daemon_util: str) -> list[str]:
    """Remove the state of the take-over from this node."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(state_dir(paths))
    return []


#: Function by step.
STEPS: Final[dict[str, Callable[[Paths, Runner, str], list[str]]]] = {
    "look": _look,
    "stop": _stop,
    "keep": _keep,
    "convert": _convert,
    "start": _start,
    "halt": _halt,
    "restore": _restore,
    "start-old": _start_old,
    "forget": _forget,
}
