"""``ganeti-watcher``: options, pause, locks, exit codes and files of one run."""

import argparse
import contextlib
import fcntl
import logging
import math
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from ganeti.automation.watcher import group_part, master_part, node_part
from ganeti.automation.watcher.effects import Settings, Watch
from ganeti.base import clock, errors, log, pathutils, process
from ganeti.base.constants import exitcodes, versions
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.text import arguments
from ganeti.base.text.units import parse_duration
from ganeti.decisions import watching
from ganeti.protocols import luxi

_log = logging.getLogger(__name__)

# The pause file: until when the watcher rests.

_NAME: Final = "watcher.pause"
#: Seconds after its end at which a pause file is removed.
_KEPT_S: Final = 3600.0
#: Bytes; the file has one number.
_MAX_SIZE: Final = 1000


def pause_end(paths: Paths, now: float) -> float | None:
    """Return the end of the present pause, None without a pause.

    A file without a time, or whose time passed long ago, is removed.

    Args:
        paths: of this node.
        now: seconds since 1970.
    """
    path = paths.data(_NAME)
    try:
        end = _time(files.read_file(path, max_size=_MAX_SIZE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, errors.GenericError) as err:
        _log.warning("%s: removed, wanted a time: %s", path, err)
        files.remove_file(path)
        return None
    if end > now:
        return end
    if now - end > _KEPT_S:
        _log.info("%s: removed, the pause has ended", path)
        files.remove_file(path)
    return None


def _time(data: bytes) -> float:
    end = float(data)
    if not math.isfinite(end):
        raise ValueError(f"found {end}")
    return end


NAME: Final = "ganeti-watcher"
_LOG_FILE: Final = "watcher.log"
_LOCK_FILE: Final = "ganeti-watcher.lock"
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Seconds to wait for the master daemon's socket.
_CONNECT_S: Final = 10.0
#: Retries of a request after a broken connection; the next run is five minutes away.
_RETRIES: Final = 2


class Failure(Exception):
    """The end of a run with an exit code and one line for the error output."""

    def __init__(self, text: str, code: int = exitcodes.EXIT_FAILURE) -> None:
        super().__init__(text)
        self.code = code


def _age(text: str) -> int:
    try:
        return parse_duration(text)
    except errors.OpPrereqError as err:
        raise argparse.ArgumentTypeError(str(err.args[0])) from err


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Keep daemons, instances and disks running.",
        formatter_class=arguments.Formatter,
    )
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("-V", "--version", action="version", version=version)
    add = parser.add_argument
    add("-d", "--debug", action="store_true", help="log more, also to the error output")
    add(
        *("-A", "--job-age"),
        type=_age,
        default="6h",
        metavar="AGE",
        help="archive jobs that ended longer ago than this, such as 90m, 6h or 2d"
        " (default: 6h)",
    )
    add("--ignore-pause", action="store_true", help="work also during a pause")
    wait = parser.add_mutually_exclusive_group()
    wait.add_argument(
        "--wait-children",
        action="store_true",
        dest="wait_children",
        default=True,
        help="wait until the work on all node groups has ended (default)",
    )
    wait.add_argument(
        "--no-wait-children",
        action="store_false",
        dest="wait_children",
        help="do not wait for the work on node groups",
    )
    add("--no-verify-disks", action="store_true", help="do not check disks")
    add("--no-strict", action="store_true", help="check only disks with free locks")
    add(
        "--rapi-ip",
        metavar="IP",
        help="address at which ganeti-rapi is asked whether it works (default: the one"
        " at which its process listens)",
    )
    add("-g", "--node-group", metavar="GROUP", help="work on this node group only")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        debug=options.debug,
        job_age_s=options.job_age,
        ignore_pause=options.ignore_pause,
        wait_children=options.wait_children,
        verify_disks=not options.no_verify_disks,
        strict=not options.no_strict,
        rapi_ip=options.rapi_ip,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the watcher and return its exit code."""
    options = build_parser().parse_args(argv)
    try:
        paths = pathutils.from_environ(os.environ)
        _check_member(paths)
        log_file = f"{paths.log_dir}/{_LOG_FILE}"
        log.set_up(NAME, log_file, debug=options.debug, terminal=options.debug)
    except (errors.GenericError, OSError, Failure) as err:
        return _report(_text(err), exitcodes.EXIT_FAILURE)
    watch = Watch(
        settings=_settings(options),
        paths=paths,
        process=process.SystemRunner(),
        clock=clock.SystemClock(),
        connect=lambda: luxi.Client.of_node(
            paths, connect_timeout_s=_CONNECT_S, retries=_RETRIES
        ),
    )
    try:
        return guarded(watch, options.node_group)
    finally:
        log.shut_down()


def _check_member(paths: pathutils.Paths) -> None:
    if not os.path.exists(paths.server_pem):
        path = paths.server_pem
        raise Failure(f"this machine is not a node of a cluster: {path} is missing")


def guarded(watch: Watch, group: str | None) -> int:
    """Run under the watcher's lock unless paused; log errors; return the exit code."""
    try:
        return _run(watch, group)
    except (errors.JobQueueFull, errors.JobQueueDrainError) as err:
        _log.warning("the master accepts no jobs, the next run tries again: %s", err)
        return exitcodes.EXIT_SUCCESS
    except master_part.NotMaster as err:
        if group is None:
            _log.warning("%s; leaving the cluster to it", err)
            return exitcodes.EXIT_SUCCESS
        _log.error("%s", err)
        return _report(err, exitcodes.EXIT_NOTMASTER)
    except Failure as err:
        _log.error("%s", err)
        return _report(err, err.code)
    except KeyboardInterrupt:
        _log.warning("interrupted; submitted jobs continue")
        return _report("interrupted; submitted jobs continue", exitcodes.EXIT_FAILURE)
    except (errors.GenericError, OSError) as err:
        text = _text(err)
        _log.error("%s", text)
        return _report(text, exitcodes.EXIT_FAILURE)
    except Exception as err:  # noqa: BLE001 - no traceback reaches cron's mail
        _log.exception("the run failed unexpectedly")
        return _report(
            f"unexpected error, see {_LOG_FILE}: {err}", exitcodes.EXIT_FAILURE
        )


def _text(err: Exception) -> str:
    if isinstance(err, errors.NoMasterError):
        return f"no master daemon listens on {err.args[0]}; see its log"
    is_ours = isinstance(err, errors.GenericError) and err.args
    return str(err.args[0] if is_ours else err)


def _report(problem: object, code: int) -> int:
    sys.stderr.write(f"{NAME}: {problem}\n")
    return code


def _run(watch: Watch, group: str | None) -> int:
    if not watch.settings.ignore_pause:
        end = pause_end(watch.paths, watch.clock.time())
        if end is not None:
            _log.info("paused until Unix time %d, nothing is done", end)
            return exitcodes.EXIT_SUCCESS
    with contextlib.ExitStack() as stack:
        path = f"{watch.paths.lock_dir}/{_LOCK_FILE}"
        try:
            # Programs that stop all daemons hold this lock exclusively.
            stack.enter_context(files.locked(path, timeout_s=0, shared=True))
        except errors.LockError as err:
            _log.info("nothing is done, another program excludes the watcher: %s", err)
            return exitcodes.EXIT_SUCCESS
        if group is not None:
            _run_group(watch, group)
            return exitcodes.EXIT_SUCCESS
        _check_own_name(watch)
        node_part.run(watch, os.environ)
        return master_part.run(watch)


def _check_own_name(watch: Watch) -> None:
    """Check that this node can find itself, as its daemons must.

    Raises:
        Failure: its name does not resolve.
    """
    name = watch.paths.hostname
    try:
        netutils.lookup(name, watch.paths)
    except errors.ResolverError as err:
        text = f"the own name {name} does not resolve: {err.args[-1]}"
        raise Failure(text, exitcodes.EXIT_NODESETUP_ERROR) from err


def _run_group(watch: Watch, group: str) -> None:
    groups = watch.ssconf.nodegroups()
    matches = [uuid for uuid, name in groups.items() if group in {uuid, name}]
    if len(matches) != 1 or not _UUID.fullmatch(matches[0]):
        wanted = "the UUID or the name of a group of this cluster"
        raise Failure(f"--node-group: wanted {wanted}, found {group!r}")
    with opened(watch.paths, matches[0]) as file:
        group_part.run(watch, matches[0], file)


if __name__ == "__main__":
    sys.exit(main())


#: Seconds to wait for another process that merges the status files.
_MERGE_S: Final = 10.0
#: Bytes; a state with 20,000 instances in trouble has 3 MB.
_MAX_STATE: Final = 64 << 20
#: The merged file is for monitoring by other users.
_MERGED_MODE: Final = 0o644
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def state_path(paths: Paths, group: str) -> str:
    """Return the state file of a group."""
    return paths.data(f"watcher.{group}.data")


def status_path(paths: Paths, group: str) -> str:
    """Return the file with the status of a group's instances."""
    return paths.data(f"watcher.{group}.instance-status")


def merged_path(paths: Paths) -> str:
    """Return the file with the status of all instances."""
    return f"{paths.run_dir}/instance-status"


class StateFile:
    """The state of a group, locked against other runs; use `opened`."""

    def __init__(self, paths: Paths, group: str, fd: int) -> None:
        self._paths, self._group = paths, group
        self._path = state_path(paths, group)
        self._fds = [fd]
        self.state = self._load()

    def _load(self) -> watching.GroupState:
        data = os.pread(self._fds[0], _MAX_STATE, 0)
        try:
            return watching.parse_group_state(data)
        except errors.ParseError as err:
            _log.warning("%s: %s; beginning with an empty state", self._path, err)
            return watching.EMPTY

    def save(self, state: watching.GroupState) -> None:
        """Replace the state durably; only touch the file if it is unchanged.

        Raises:
            OSError: the file cannot be written.
        """
        if state == self.state:
            os.utime(self._path)
            return
        temporary = f"{self._path}.new"
        fd = os.open(temporary, _OPEN, 0o600)
        # The new file is locked before others can open it under its name.
        self._fds.append(fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            os.ftruncate(fd, 0)
            with open(fd, "wb", closefd=False) as stream:
                stream.write(watching.format_group_state(state))
            os.fsync(fd)
        except OSError as err:
            err.filename = temporary
            raise
        os.rename(temporary, self._path)
        files.sync_dir(os.path.dirname(self._path))
        self.state = state

    def publish(self, statuses: Mapping[str, str], groups: Collection[str]) -> None:
        """Write the status of each instance, see `write_status`."""
        write_status(self._paths, self._group, statuses, groups)

    def close(self) -> None:
        """Release the lock."""
        while self._fds:
            os.close(self._fds.pop())


@contextlib.contextmanager
def opened(paths: Paths, group: str) -> Iterator[StateFile]:
    """Lock the state of a group during a block.

    Raises:
        LockError: another run holds the lock.
        OSError: the file cannot be opened.
    """
    file = StateFile(paths, group, _open_locked(state_path(paths, group)))
    try:
        yield file
    finally:
        file.close()


def _open_locked(path: str) -> int:
    """Return a locked descriptor of the file that has this name now."""
    while True:
        fd = os.open(path, _OPEN, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise errors.LockError(
                f"{path}: locked; another watcher works on this group"
            ) from None
        # Its owner may have replaced the file between open and lock.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                return fd
        os.close(fd)


def write_status(
    paths: Paths, group: str, statuses: Mapping[str, str], groups: Collection[str]
) -> None:
    """Write the status of a group's instances and merge the files of all groups.

    Args:
        paths: of this node.
        group: uuid.
        statuses: instance name -> status word.
        groups: uuids of all groups.
    """
    text = "\n".join(f"{name} {status}" for name, status in sorted(statuses.items()))
    files.write_file(status_path(paths, group), text)
    try:
        with files.locked(f"{merged_path(paths)}.lock", timeout_s=_MERGE_S):
            merged = _merged(paths, groups)
            files.write_file(merged_path(paths), merged, mode=_MERGED_MODE)
    except errors.LockError as err:
        _log.warning("the status of all instances is not updated: %s", err)


def _merged(paths: Paths, groups: Collection[str]) -> str:
    """Return the lines of all groups; the newest file with an instance counts."""
    dated = []
    for group in groups:
        path = status_path(paths, group)
        with contextlib.suppress(FileNotFoundError):
            dated.append((os.stat(path).st_mtime_ns, path))
    lines: dict[str, str] = {}
    for _when, path in sorted(dated):
        with contextlib.suppress(FileNotFoundError):
            for line in files.read_file(path).decode().splitlines():
                name, _blank, status = line.partition(" ")
                lines[name] = status
    return "".join(f"{name} {status}\n" for name, status in sorted(lines.items()))
