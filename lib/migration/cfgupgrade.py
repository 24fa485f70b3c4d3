"""``cfgupgrade``: import a cluster of Ganeti 2.x or 3.x, or export it.

Upgrading reads ``config.data`` and the ended jobs of the old queue and writes them to a
new store. ``--export`` and ``--downgrade`` write ``config.data`` from the store in the
format of 3.1 and 3.0, and the ended jobs as files. Replaced files are kept in the
backup directory. The daemons must be stopped.
"""

import argparse
import dataclasses
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

import simplejson

from ganeti import store
from ganeti.base import errors, pathutils
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.filesystem import files, pidfile
from ganeti.master import config
from ganeti.migration import ganeti2_config, old_config, old_jobs
from ganeti.node.storage import allowed
from ganeti.protocols.ssconf import SimpleStore
from ganeti.store import Change, choice, schema
from ganeti.tools import common

_log = logging.getLogger(__name__)
NAME: Final = "cfgupgrade"
#: Version of files for Ganeti 3.0, one minor version below ours.
OLDER_VERSION: Final = 3000000
_CONFIG_MODE: Final = 0o640
_LIST_MODE: Final = 0o644
#: Files that a writer of the store keeps beside it.
_COMPANIONS: Final = ("-wal", "-shm")
_WRITERS: Final = ("ganeti-masterd", "ganeti-wconfd", "ganeti-luxid")
_QUESTION: Final = """\
Please make sure that all Ganeti daemons are stopped on all nodes: their changes
from now on would be lost. Continue? [y/N] """


def _parse() -> argparse.Namespace:
    parser = common.parser(
        NAME, "Converts a cluster's configuration from Ganeti 2.x and 3.x, or to 3.x."
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    parser.add_argument("-f", "--force", action="store_true", help="do not ask")
    parser.add_argument(
        "--ignore-hostname",
        action="store_true",
        help="do not require that this node is the master",
    )
    parser.add_argument(
        "--path",
        help="data directory to convert: config.data, queue, store and ssconf files",
    )
    parser.add_argument("--confdir", help="directory of file-storage-paths")
    parser.add_argument(
        "--no-verify", action="store_true", help="accept an inconsistent configuration"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--downgrade", action="store_true", help="write config.data for Ganeti 3.0"
    )
    way.add_argument(
        "--export", action="store_true", help="write config.data for Ganeti 3.1"
    )
    return parser.parse_args()


class _DataDirectory(pathutils.Paths):
    """The paths of this machine, with the data in another directory."""

    directory: str

    @property
    def data_dir(self) -> str:
        """State directory."""
        return self.directory


def _paths_of(directory: str | None) -> tuple[pathutils.Paths, bool]:
    """Return the paths to work on, and whether they are those of the daemons here.

    Raises:
        GenericError: there is no such directory.
    """
    own = common.own_paths()
    if directory is None:
        return own, True
    if not os.path.isdir(directory):
        raise errors.GenericError(f"--path: {directory}: no such directory")
    if os.path.exists(own.data_dir) and os.path.samefile(directory, own.data_dir):
        return own, True
    paths = _DataDirectory(*own)
    paths.directory = os.path.abspath(directory)
    return paths, False


@dataclasses.dataclass(frozen=True)
class UpgradePaths:
    """Files of one conversion."""

    config_data: str
    queue_dir: str
    store_db: str
    backup_dir: str
    #: List of the directories that may hold disks; empty: not written.
    storage_list: str = ""

    @classmethod
    def of(cls, paths: pathutils.Paths, conf_dir: str | None = None) -> "UpgradePaths":
        """Return the paths of a node."""
        listed = os.path.basename(allowed.list_file(paths))
        return cls(
            config_data=paths.data("config.data"),
            queue_dir=paths.data("queue"),
            store_db=paths.store_db,
            backup_dir=paths.backup_dir,
            storage_list=os.path.join(conf_dir or paths.conf_dir, listed),
        )


def main() -> int:
    """Run the tool."""
    options = _parse()
    common.start_log(NAME, options)
    return common.run(NAME, lambda: _work(options))


def _work(options: argparse.Namespace) -> None:
    paths, is_own = _paths_of(options.path)
    if not options.ignore_hostname:
        check_master(paths)
    for daemon in _WRITERS:
        if is_own and pidfile.is_locked(paths.pid_file(daemon)):
            raise errors.GenericError(f"{daemon} is running; stop all daemons first")
    if choice.is_etcd(paths):
        # The file only follows, and nothing follows from it.
        raise errors.GenericError(
            f"the store is {choice.describe(paths)}; move it to files first, with"
            " 'gnt-cluster migrate-store --to file'"
        )
    if not (options.force or options.dry_run) and not _is_confirmed():
        raise errors.GenericError("nothing was changed")
    places = UpgradePaths.of(paths, options.confdir)
    dry_run, check = options.dry_run, not options.no_verify
    if options.downgrade:
        write_config(places, version=OLDER_VERSION, dry_run=dry_run, check=check)
        done = "downgraded to version 3.0"
    elif options.export:
        write_config(places, dry_run=dry_run, check=check)
        done = "exported for version 3.1"
    else:
        own = SimpleStore(paths).get_or("cluster_name", "")
        take_config(
            places, SystemClock(), dry_run=dry_run, check=check, cluster_name=own
        )
        done = "upgraded to version 3.1"
    if dry_run:
        sys.stderr.write(
            f"Dry run: the configuration can be {done}; nothing was changed.\n"
        )
    else:
        sys.stderr.write(f"Configuration successfully {done}.\n")


def _is_confirmed() -> bool:
    sys.stdout.write(_QUESTION)
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def check_master(paths: pathutils.Paths) -> None:
    """Refuse to run on a node that is not the master.

    Raises:
        GenericError: this node is not the master.
    """
    master = SimpleStore(paths).master_node()
    if master != paths.hostname:
        raise errors.GenericError(
            f"the master is {master}, this node is {paths.hostname};"
            " run this on the master or skip the check with --ignore-hostname"
        )


def take_config(
    places: UpgradePaths,
    clock: Clock,
    *,
    dry_run: bool,
    check: bool,
    cluster_name: str = "",
) -> None:
    """Import ``config.data`` and the ended jobs into a new store.

    Args:
        places: the files.
        clock: of the store.
        dry_run: run all checks and change nothing.
        check: refuse an inconsistent configuration.
        cluster_name: the cluster of this node; empty accepts every cluster.

    Raises:
        ConfigurationError: unreadable, of another version or cluster, or inconsistent;
            or a job has not ended.
        StorageError: the store cannot be written; the old one is unchanged.
    """
    old = old_config.load(places.config_data)
    version = old.get("version") if isinstance(old, dict) else None
    directories = ganeti2_config.directories(old, version)
    changes = old_config.read(
        places.config_data, check=check, cluster_name=cluster_name, convert=True
    )
    changes += old_jobs.read(places.queue_dir)
    _log.warning("%s: is of %s", places.config_data, old_config.release(version))
    if dry_run:
        _log.warning("%s can be imported", places.config_data)
        return
    _list_directories(places.storage_list, directories)
    fresh = f"{places.store_db}.new"
    make_store(fresh, changes, clock, seen_term=_seen_term(places.store_db))
    _back_up(places.store_db, places.backup_dir)
    for suffix in _COMPANIONS:
        files.remove_file(places.store_db + suffix)
    os.replace(fresh, places.store_db)
    files.sync_dir(os.path.dirname(places.store_db))
    _back_up(places.config_data, places.backup_dir)
    for step in ganeti2_config.advice(version):
        _log.warning("%s", step)


def _list_directories(path: str, directories: Sequence[str]) -> None:
    """Allow the directories of disks, which releases before 2.7 did not list."""
    if path and directories and not os.path.lexists(path):
        text = "".join(f"{line}\n" for line in (allowed.LIST_HEADER, *directories))
        files.make_dir(os.path.dirname(path), 0o755)
        files.write_file(path, text.encode(), mode=_LIST_MODE)
        _log.info("%s: written, with %s", path, ", ".join(directories))


def make_store(
    path: str, changes: Sequence[Change], clock: Clock, *, seen_term: int
) -> None:
    """Write a new store, in place of a file that may be there.

    Raises:
        StorageError: the store cannot be written.
    """
    schema.remove_file(path)
    new_store = store.open_master(
        path, replicate=None, clock=clock, seen_term=seen_term
    )
    try:
        new_store.commit(changes)
    finally:
        new_store.close()


def write_config(
    places: UpgradePaths, *, dry_run: bool, check: bool, version: int | None = None
) -> None:
    """Write ``config.data`` and the ended jobs from the store.

    Raises:
        ConfigurationError: the store is unreadable or inconsistent.
    """
    follower = store.Follower(places.store_db)
    try:
        snapshot, data = follower.snapshot(), follower.read("meta", config.HEADER_KEY)
        if check:
            old_config.verify(places.store_db, snapshot)
        snapshot, lost = old_config.without_extensions(snapshot)
        for line in lost:
            _log.warning("left out, because Ganeti does not have it: %s", line)
        value = config.export_config(snapshot, config.Header.decode(data))
        if version is not None:
            value["version"] = version
        if dry_run:
            _log.warning("%s can be written", places.config_data)
            return
        old_jobs.write(places.queue_dir, follower)
    finally:
        follower.close()
    _back_up(places.config_data, places.backup_dir)
    text = simplejson.dumps(value, separators=(",", ":"))
    files.write_file(places.config_data, text.encode(), mode=_CONFIG_MODE)


def _seen_term(path: str) -> int:
    return int(store.Replica(path).status()["term"])


def _back_up(path: str, directory: str) -> None:
    if os.path.exists(path):
        _log.info("%s: copied to %s", path, files.backup_file(path, directory))
