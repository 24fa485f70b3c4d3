"""``cfgupgrade``: import a cluster of Ganeti 3.x, or export it.

Upgrading reads ``config.data`` and the last job id of the old queue and writes them to
a new store. ``--export`` and ``--downgrade`` write ``config.data`` from the store in
the format of 3.1 and 3.0. Replaced files are kept in the backup directory. The daemons
must be stopped. Jobs are not converted.
"""

import argparse
import dataclasses
import logging
import os
import re
import sys
import uuid
from typing import Any, Final

import simplejson

from ganeti import config, errors, pathutils, store
from ganeti.clock import Clock, SystemClock
from ganeti.jqueue import documents
from ganeti.objects import Snapshot, Update
from ganeti.ssconf import SimpleStore
from ganeti.store import Change, Document
from ganeti.tools import common
from ganeti.utils import files, pidfile

_log = logging.getLogger(__name__)
NAME: Final = "cfgupgrade"
#: Parts of the version number of a file: 2160000 is of Ganeti 2.16.
_MAJOR: Final = 1000000
_MINOR: Final = 10000
#: Version of files for Ganeti 3.0, one minor version below ours.
OLDER_VERSION: Final = 3000000
_CONFIG_MODE: Final = 0o640
_WRITERS: Final = ("ganeti-masterd", "ganeti-wconfd", "ganeti-luxid")
_QUESTION: Final = """\
Please make sure that all Ganeti daemons are stopped on all nodes: their changes
from now on would be lost. Continue? [y/N] """


def _parse() -> argparse.Namespace:
    parser = common.parser(
        NAME, "Converts a cluster's configuration from and to Ganeti 3.x."
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    parser.add_argument("-f", "--force", action="store_true", help="do not ask")
    parser.add_argument(
        "--ignore-hostname",
        action="store_true",
        help="do not require that this node is the master",
    )
    parser.add_argument("--path", help="directory of config.data")
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


@dataclasses.dataclass(frozen=True)
class UpgradePaths:
    """Files of one conversion."""

    config_data: str
    job_serial: str
    store_db: str
    backup_dir: str

    @classmethod
    def of(cls, paths: pathutils.Paths, directory: str | None = None) -> "UpgradePaths":
        """Return the paths of a node, with ``config.data`` in a directory."""
        old = directory or paths.data_dir
        return cls(
            config_data=os.path.join(old, "config.data"),
            job_serial=os.path.join(old, "queue", "serial"),
            store_db=paths.store_db,
            backup_dir=paths.backup_dir,
        )


def main() -> int:
    """Run the tool."""
    options = _parse()
    common.start_log(NAME, options)
    return common.run(NAME, lambda: _work(options))


def _work(options: argparse.Namespace) -> None:
    paths = common.own_paths()
    if not options.ignore_hostname:
        check_master(paths)
    for daemon in _WRITERS:
        if pidfile.is_locked(paths.pid_file(daemon)):
            raise errors.GenericError(f"{daemon} is running; stop all daemons first")
    if not (options.force or options.dry_run) and not _is_confirmed():
        raise errors.GenericError("nothing was changed")
    places = UpgradePaths.of(paths, options.path)
    dry_run, check = options.dry_run, not options.no_verify
    if options.downgrade:
        write_config(places, version=OLDER_VERSION, dry_run=dry_run, check=check)
        done = "downgraded to version 3.0"
    elif options.export:
        write_config(places, dry_run=dry_run, check=check)
        done = "exported for version 3.1"
    else:
        take_config(places, SystemClock(), dry_run=dry_run, check=check)
        done = "upgraded to version 3.1"
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
    places: UpgradePaths, clock: Clock, *, dry_run: bool, check: bool
) -> None:
    """Import ``config.data`` into a new store.

    Raises:
        ConfigurationError: unreadable, of another version, or inconsistent.
        StorageError: the store cannot be written; the old one is unchanged.
    """
    data = _read_json(places.config_data)
    _name_children(data)
    try:
        changes = config.import_config(data, accept=config.UPGRADABLE)
    except errors.ConfigVersionMismatch as err:
        raise errors.ConfigurationError(_other_version(places, err.args[1])) from err
    if check:
        _verify(Snapshot().apply(item for item in changes if isinstance(item, Update)))
    changes += _job_serial(places.job_serial)
    if dry_run:
        _log.warning("%s can be imported", places.config_data)
        return
    fresh = f"{places.store_db}.new"
    for suffix in ("", "-wal", "-shm"):
        files.remove_file(fresh + suffix)
    new_store = store.open_master(
        fresh, replicate=None, clock=clock, seen_term=_seen_term(places.store_db)
    )
    try:
        new_store.commit(changes)
    finally:
        new_store.close()
    _back_up(places.store_db, places.backup_dir)
    for suffix in ("-wal", "-shm"):
        files.remove_file(places.store_db + suffix)
    os.replace(fresh, places.store_db)
    files.sync_dir(os.path.dirname(places.store_db))
    _back_up(places.config_data, places.backup_dir)


def _name_children(data: Any) -> None:
    """Give the parts of disks uuids, which files of Ganeti 3.0 and 3.1 may lack."""
    disks = data.get("disks") if isinstance(data, dict) else None
    left = list(disks.values()) if isinstance(disks, dict) else []
    while left:
        disk = left.pop()
        children = disk.get("children") if isinstance(disk, dict) else None
        for child in children if isinstance(children, list) else ():
            if isinstance(child, dict):
                child.setdefault("uuid", str(uuid.uuid4()))
                left.append(child)


def _other_version(places: UpgradePaths, version: object) -> str:
    """Return the error about a file of a release that cannot be imported."""
    release = "of no known release"
    if isinstance(version, int) and version >= _MAJOR:
        release = f"of Ganeti {version // _MAJOR}.{version // _MINOR % 100}"
    return (
        f"{places.config_data}: is {release} (version {version!r}); files of Ganeti 3.0"
        " and 3.1 can be imported. Upgrade the cluster to Ganeti 3.0 with its own tools"
        " first"
    )


def write_config(
    places: UpgradePaths, *, dry_run: bool, check: bool, version: int | None = None
) -> None:
    """Write ``config.data`` from the store.

    Raises:
        ConfigurationError: the store is unreadable or inconsistent.
    """
    follower = store.Follower(places.store_db)
    try:
        snapshot, data = follower.snapshot(), follower.read("meta", config.HEADER_KEY)
    finally:
        follower.close()
    if check:
        _verify(snapshot)
    value = config.export_config(snapshot, config.Header.decode(data))
    if version is not None:
        value["version"] = version
    if dry_run:
        _log.warning("%s can be written", places.config_data)
        return
    _back_up(places.config_data, places.backup_dir)
    text = simplejson.dumps(value, separators=(",", ":"))
    files.write_file(places.config_data, text.encode(), mode=_CONFIG_MODE)


def _read_json(path: str) -> object:
    try:
        return simplejson.loads(files.read_file(path))
    except FileNotFoundError as err:
        raise errors.ConfigurationError(f"{path}: no such file") from err
    except ValueError as err:
        raise errors.ConfigurationError(f"{path}: not valid JSON: {err}") from err


def _verify(snapshot: Snapshot) -> None:
    problems = config.verify(snapshot)
    for problem in problems:
        _log.error("%s", problem)
    if problems:
        raise errors.ConfigurationError(
            f"the configuration has {len(problems)} problems, listed above;"
            " --no-verify accepts them"
        )


def _job_serial(path: str) -> list[Change]:
    """Return the change that makes job ids continue after the old queue's last one."""
    try:
        text = files.read_file(path).decode().strip()
    except FileNotFoundError:
        return []
    if not re.fullmatch(r"\d+", text):
        raise errors.ConfigurationError(f"{path}: wanted a job id, found {text!r}")
    return [Document(documents.META, documents.SERIAL, text.encode())]


def _seen_term(path: str) -> int:
    return int(store.Replica(path).status()["term"])


def _back_up(path: str, directory: str) -> None:
    if os.path.exists(path):
        _log.info("%s: copied to %s", path, files.backup_file(path, directory))
