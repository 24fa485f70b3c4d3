"""``take-over-node``: one step of a take-over on one node, for ``take-over``.

Runs on each node over SSH, with the step on its input, and prints what it found as one
JSON object. Each step can be repeated.
"""

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, SystemRunner
from ganeti.migration.takeover import services
from ganeti.node.hypervisor.kvm import files as kvm_files
from ganeti.node.hypervisor.kvm import runtime
from ganeti.node.services import Services
from ganeti.protocols.ssconf import SimpleStore
from ganeti.store import schema
from ganeti.tools import common

# Runtime files of guests that another implementation of Ganeti 3 has started.
#
# The forms are the same up to small differences: other implementations write numbers
# among the arguments, leave out the control sockets, and have the value ``default`` for
# the parameter ``disk_discard``. Specified in the hypervisor document, section 2.2.

_SUFFIX = ".runtime"
_MODE = 0o600
_SOCKETS = ("qmp", "kvmd")


def convert_runtime(paths: Paths, name: str, text: bytes) -> bytes:
    """Return a runtime file as this implementation reads it.

    Raises:
        HypervisorError: the file is damaged.
    """
    try:
        argv, nics, hvparams, disks = msgspec.json.decode(text)
        strings = _with_control(paths, name, [str(word) for word in argv])
        params: dict[str, Any] = dict(hvparams)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, ValueError) as err:
        raise errors.HypervisorError(f"instance {name}: runtime: {err}") from err
    if params.get("disk_discard") == "default":
        params["disk_discard"] = "ignore"
    value = msgspec.json.encode([strings, nics, params, disks])
    return msgspec.json.encode(runtime.parse(name, value))


def _with_control(paths: Paths, name: str, argv: list[str]) -> list[str]:
    """Return arguments with the control sockets, which others add at each start."""
    if "-qmp" in argv:
        return argv
    guest = kvm_files.Files(paths, name)
    sockets = (f"unix:{guest.control(kind)},server=on,wait=off" for kind in _SOCKETS)
    return [*argv, *(word for socket in sockets for word in ("-qmp", socket))]


def runtime_directory(paths: Paths) -> str:
    """Return the directory of the runtime files of a node."""
    return f"{kvm_files.root_dir(paths)}/conf"


def runtime_path(paths: Paths, name: str) -> str:
    """Return the runtime file of a guest."""
    return f"{runtime_directory(paths)}/{name}{_SUFFIX}"


def runtime_names(paths: Paths) -> list[str]:
    """Return the guests of this node that have a runtime file, sorted."""
    return _names(runtime_directory(paths))


def convert_runtimes(paths: Paths, originals: str) -> list[str]:
    """Convert the runtime files of this node; return the names of their guests.

    Can be repeated after an interruption.

    Args:
        paths: of this node.
        originals: directory for the files as they were.

    Raises:
        HypervisorError: a file is damaged; the files before it are converted.
    """
    present = runtime_names(paths)
    os.makedirs(originals, mode=0o700, exist_ok=True)
    for name in present:
        path = runtime_path(paths, name)
        text = files.read_file(path)
        if not os.path.exists(f"{originals}/{name}{_SUFFIX}"):
            files.write_file(f"{originals}/{name}{_SUFFIX}", text, mode=_MODE)
        converted = convert_runtime(paths, name, text)
        if converted != text:
            files.write_file(path, converted, mode=_MODE)
    return present


def restore_runtimes(paths: Paths, originals: str) -> list[str]:
    """Put back the files of guests that were not started since; return their names."""
    restored = []
    for name in _names(originals):
        path = runtime_path(paths, name)
        before = files.read_file(f"{originals}/{name}{_SUFFIX}")
        with contextlib.suppress(FileNotFoundError):
            if files.read_file(path) == convert_runtime(paths, name, before):
                files.write_file(path, before, mode=_MODE)
                restored.append(name)
    return restored


def _names(path: str) -> list[str]:
    try:
        entries = sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    return [name.removesuffix(_SUFFIX) for name in entries if name.endswith(_SUFFIX)]


# Owners and modes of a node's files, kept for the way back.
#
# The daemons of this implementation run as root, others as users of their own. No file
# that the others need is removed, so their owners and modes are enough.

#: Most rows of the list: a queue has at most 5,000 live jobs.
_MAX_ROWS: Final = 1_000_000


class KeptRow(NamedTuple):
    """Owner and mode of one file or directory."""

    path: str
    uid: int
    gid: int
    mode: int


def keep_files(paths: Paths, target: str) -> int:
    """Write the owners and modes of this node's files; return their number.

    Does nothing if the list is there: after an interruption, the first one counts.
    """
    if os.path.exists(target):
        return 0
    tops = (paths.data_dir, paths.run_dir, paths.log_dir)
    rows = [row for top in tops for row in _walk(top)]
    files.write_file(target, msgspec.json.encode(rows), mode=0o600)
    return len(rows)


def restore_files(paths: Paths, target: str) -> int:
    """Give the files that still exist their owners and modes; return their number.

    New files of the queue get the owners and modes of the queue itself.
    """
    try:
        rows = msgspec.json.decode(
            files.read_file(target, max_size=files.WHOLE_STATE), type=list[KeptRow]
        )
    except FileNotFoundError:
        return 0
    return sum(map(_restore_file, [*rows[:_MAX_ROWS], *_new_in_queue(paths, rows)]))


def _new_in_queue(paths: Paths, rows: Sequence[KeptRow]) -> Iterator[KeptRow]:
    """Yield the wanted owners and modes of files of the queue that are not listed."""
    known = {row.path: row for row in rows}
    queue = known.get(paths.data("queue"))
    if queue is None:
        return
    for row in _walk(queue.path):
        if row.path not in known:
            mode = queue.mode if os.path.isdir(row.path) else queue.mode & 0o666
            yield KeptRow(row.path, queue.uid, queue.gid, mode)


def _walk(top: str) -> Iterator[KeptRow]:
    yield from _row(top)
    for directory, names, others in os.walk(top):
        for name in sorted((*names, *others)):
            yield from _row(os.path.join(directory, name))


def _row(path: str) -> Iterator[KeptRow]:
    with contextlib.suppress(FileNotFoundError):
        state = os.lstat(path)
        if stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode):
            yield KeptRow(path, state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode))


def _restore_file(row: KeptRow) -> bool:
    try:
        fd = os.open(row.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.fchown(fd, row.uid, row.gid)
        os.fchmod(fd, row.mode)
    finally:
        os.close(fd)
    return True


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
        raise refusal(
            f"input: wanted a step ({', '.join(STEPS)}) and the path daemon_util"
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
    for name in runtime_names(paths):
        try:
            convert_runtime(paths, name, files.read_file(runtime_path(paths, name)))
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
    keep_files(paths, f"{state_dir(paths)}/owners.json")
    return []


def _convert(paths: Paths, _process: Runner, _daemon_util: str) -> list[str]:
    """Convert the runtime files of guests."""
    return convert_runtimes(paths, f"{state_dir(paths)}/runtime")


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
    restored = restore_runtimes(paths, f"{state_dir(paths)}/runtime")
    schema.remove_file(paths.store_db)
    restore_files(paths, f"{state_dir(paths)}/owners.json")
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
