"""``ensure-dirs``: create the directories of a node, correct owners and modes.

Runs before daemons start. Missing files are skipped: a node's files depend on its role.
"""

import argparse
import os
import stat
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from ganeti.base import daemon_users, errors
from ganeti.base.constants import daemons, exitcodes, versions
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths, from_environ
from ganeti.base.text import arguments


class PathMode(NamedTuple):
    """A path, its mode, and the daemon whose log it is, if any.

    The owner is root, and of a log the user of its daemon. The group is root, or the
    one of a daemon that reads the file, see `daemon_users.reader_group`.
    """

    path: str
    mode: int
    logs: str = ""


#: Files of the state directory and their modes.
_DATA_FILES: Final = (
    ("config.data", 0o640),
    ("server.pem", 0o440),
    ("server-key.pem", 0o600),
    ("client.pem", 0o440),
    ("client.pem.key", 0o400),
    ("client.pem.tmp", 0o440),
    ("rapi.pem", 0o440),
    ("spice.pem", 0o440),
    ("spice-ca.pem", 0o440),
    ("cluster-domain-secret", 0o640),
    ("known_hosts", 0o644),
    ("ganeti_pub_keys", 0o600),
    ("rapi/users", 0o640),
    ("watcher.pause", 0o644),
    ("store-engine", 0o600),
    ("etcd-ca.pem", 0o600),
    ("etcd-client.pem", 0o600),
    ("hmac.key", 0o440),
)
#: The store and its companions, which the group of confd reads.
_STORE_FILES: Final = ("store.db", "store.db-wal", "store.db-shm")
_STORE_MODE: Final = 0o640
_SSCONF_MODE: Final = 0o444
_DAEMONS_BY_LOG: Final = {
    daemon.log_base: name for name, daemon in daemons.DAEMONS.items() if daemon.log_base
}
_LOG_MODE: Final = 0o600
#: Directories for the logs of OS scripts and of guests.
_LOG_DIRS: Final = ("os", "kvm", "xen", "lxc", "chroot")


def directories(paths: Paths) -> list[PathMode]:
    """Return the directories of a node, parents first."""
    run, log = paths.run_dir, paths.log_dir
    return [
        PathMode(paths.data_dir, 0o755),
        PathMode(paths.data("queue"), 0o750),
        PathMode(paths.data("queue/archive"), 0o750),
        PathMode(paths.data("rapi"), 0o750),
        PathMode(run, 0o775),
        PathMode(paths.socket_dir, 0o770),
        PathMode(paths.rapi_socket_dir, 0o750),
        PathMode(paths.lock_dir, 0o700),
        PathMode(f"{run}/bdev-cache", 0o755),
        PathMode(f"{run}/uid-pool", 0o750),
        PathMode(f"{run}/instance-disks", 0o755),
        PathMode(f"{run}/crypto", 0o700),
        PathMode(f"{run}/import-export", 0o755),
        # Daemons with users of their own open their logs again after a rotation.
        PathMode(log, 0o771),
        *(PathMode(f"{log}/{name}", 0o750) for name in _LOG_DIRS),
    ]


def known_files(paths: Paths) -> Iterator[PathMode]:
    """Yield the files of a node with fixed modes."""
    for name, mode in _DATA_FILES:
        yield PathMode(paths.data(name), mode)
    for name in _STORE_FILES:
        yield PathMode(paths.data(name), _STORE_MODE)
    for name in _names(paths.data_dir):
        if name.startswith("ssconf_"):
            yield PathMode(paths.data(name), _SSCONF_MODE)
    for name in _names(paths.log_dir):
        if name.endswith(".log"):
            logs = _DAEMONS_BY_LOG.get(name.removesuffix(".log"), "")
            yield PathMode(f"{paths.log_dir}/{name}", _LOG_MODE, logs)


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def run(paths: Paths) -> None:
    """Create directories and correct modes; as root also owners.

    Raises:
        GenericError: a path is neither a directory nor a regular file as required.
        OSError: the operation is not permitted.
    """
    for entry in directories(paths):
        files.make_dir(entry.path, entry.mode, uid=_owner(), gid=_group(entry, paths))
    for entry in known_files(paths):
        owner, group = _owner(), _group(entry, paths)
        user = daemon_users.identity(entry.logs, paths)
        if user is not None:
            owner, group = user.uid, user.gid
        _correct(entry, owner, group)


def _owner() -> int:
    return 0 if os.geteuid() == 0 else -1


def _group(entry: PathMode, paths: Paths) -> int:
    """Return the group of a path, -1 for the one that it has."""
    if os.geteuid() != 0:
        return -1
    if entry.path == paths.data_dir:
        present = os.stat(paths.data_dir).st_gid if os.path.exists(entry.path) else 0
        return daemon_users.followers_group(paths, present)
    reader = daemon_users.reader_group(entry.path, paths)
    return 0 if reader is None else reader


def _correct(entry: PathMode, owner: int, group: int) -> None:
    try:
        fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise errors.GenericError(
                f"{entry.path}: wanted a regular file, found something else"
            )
        if owner != -1 and (info.st_uid, info.st_gid) != (owner, group):
            os.fchown(fd, owner, group)
        if stat.S_IMODE(info.st_mode) != entry.mode:
            os.fchmod(fd, entry.mode)
    finally:
        os.close(fd)


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(
        prog="ensure-dirs", formatter_class=arguments.Formatter
    )
    parser.add_argument("-d", "--debug", action="store_true", help="print the result")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the result")
    parser.add_argument(
        "-f", "--full-run", action="store_true", help="correct archived jobs as well"
    )
    version = f"ensure-dirs (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    options = parser.parse_args()
    try:
        run(from_environ(os.environ))
    except (errors.GenericError, OSError) as err:
        sys.stderr.write(f"ensure-dirs: {err}\n")
        return exitcodes.EXIT_FAILURE
    if options.debug or options.verbose:
        sys.stdout.write("owners and modes of directories and files are correct\n")
    return exitcodes.EXIT_SUCCESS
