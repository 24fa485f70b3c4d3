"""``ganeti-cleaner``: remove old files that no program needs; cron runs it daily.

Certificates and files of transfers remain when a master or a node ends during a
transfer, and state files of the watcher when a node group is removed or this node is
not the master any more.
Archived jobs are in the store; the master daemon deletes old ones itself.
"""

import argparse
import contextlib
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors, log
from ganeti.base.filesystem import files, pidfile
from ganeti.base.pathutils import Paths
from ganeti.base.text import arguments
from ganeti.base.tls import x509
from ganeti.tools import common

_log = logging.getLogger(__name__)
NAME: Final = "ganeti-cleaner"
#: Seconds since the last change after which a file of the watcher is removed.
MAX_AGE_S: Final = 21 * 86400
#: Seconds since the last status after which an ended transfer is removed; the master
#: daemon removes those that it still knows.
TRANSFER_AGE_S: Final = 86400
#: Logs of earlier runs that are kept, with the one of this run.
LOGS: Final = 50
_HELPER_SUFFIX: Final = re.compile(r"\.(raw|raw\.new|result)\Z")
_WATCHER_FILE: Final = re.compile(r"watcher\.[0-9a-f-]{36}\.(data|instance-status)")
_LOG_DIRS: Final = {"node": "cleaner", "master": "master-cleaner"}


class _Parser(argparse.ArgumentParser):
    """A parser with the exit code that scripts know."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Print usage and error, and exit."""
        self.print_usage(sys.stderr)
        self.exit(1, f"{NAME}: error: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    plain = common.parser(NAME, "Removes old files of this node.")
    parser = _Parser(
        parents=[plain],
        add_help=False,
        prog=NAME,
        description=plain.description,
        formatter_class=arguments.Formatter,
    )
    parser.add_argument(
        "what",
        choices=sorted(_LOG_DIRS),
        help="node: transfer certificates that have expired, files of transfers that"
        " ended more than a day ago, and files of the watcher that nobody has changed"
        " for 21 days; master: nothing is left to do, since the master daemon deletes"
        " archived jobs after 21 days",
    )
    return parser


def main() -> int:
    """Run the tool."""
    options = build_parser().parse_args()
    return common.run(NAME, lambda: _start(common.own_paths(), options))


def _start(paths: Paths, options: argparse.Namespace) -> None:
    if not os.path.exists(paths.data("ssconf_master_node")):
        return  # not a node of a cluster
    directory = f"{paths.log_dir}/{_LOG_DIRS[options.what]}"
    os.makedirs(directory, mode=0o750, exist_ok=True)
    when = time.strftime("%Y-%m-%dT%H_%M_%S")
    path = f"{directory}/cleaner-{when}.{os.getpid()}.log"
    log.set_up(NAME, path, debug=options.debug, terminal=options.verbose)
    try:
        if options.what == "node":
            clean_node(paths, time.time())
        else:
            _log.info("the master daemon deletes archived jobs by itself")
    finally:
        log.shut_down()
        _drop_logs(directory)


def clean_node(paths: Paths, now: float) -> None:
    """Remove what is old; what cannot be removed is logged and stays.

    Args:
        paths: of this node.
        now: seconds since 1970.
    """
    for path in _expired(f"{paths.run_dir}/crypto"):
        with _noted(path):
            shutil.rmtree(path)
            _log.info("%s: removed, its certificate has expired", path)
    for path in _listed(f"{paths.run_dir}/import-export"):
        with _noted(path):
            age_s = now - os.stat(path).st_mtime
            if age_s > TRANSFER_AGE_S and not pidfile.is_locked(f"{path}/pid"):
                shutil.rmtree(path)
                _log.info("%s: removed, the transfer has ended", path)
    archives = f"{paths.run_dir}/os-export"
    for path in _listed(f"{paths.data_dir}/helper-disks") + _listed(archives):
        name = _HELPER_SUFFIX.sub("", os.path.basename(path))
        with _noted(path):
            age_s = now - os.stat(path).st_mtime
            is_marked = os.path.exists(f"{paths.run_dir}/helper-machines/{name}")
            # An archive can have secrets; a machine that runs has it open.
            is_used = is_marked and not path.startswith(f"{archives}/")
            if age_s > TRANSFER_AGE_S and not is_used:
                files.remove_file(path)
                _log.info("%s: removed, the helper machine has ended", path)
    for path in _listed(paths.data_dir):
        if not _WATCHER_FILE.fullmatch(os.path.basename(path)):
            continue
        with _noted(path):
            age_s = now - os.stat(path).st_mtime
            if age_s > MAX_AGE_S:
                files.remove_file(path)
                _log.info("%s: removed, unchanged for %d days", path, age_s // 86400)


def _listed(directory: str) -> list[str]:
    """Return the paths of a directory's entries, sorted."""
    try:
        return [f"{directory}/{name}" for name in sorted(os.listdir(directory))]
    except FileNotFoundError:
        return []


def _expired(directory: str) -> Iterator[str]:
    """Yield the directories of certificates that have expired."""
    for path in _listed(directory):
        try:
            left_s = x509.seconds_left(x509.load_certificate(f"{path}/cert"))
        except (errors.GenericError, OSError) as err:
            _log.warning("%s: left alone, no certificate can be read: %s", path, err)
            continue
        if left_s < 0:
            yield path


@contextlib.contextmanager
def _noted(path: str) -> Iterator[None]:
    """Log an error of a block."""
    try:
        yield
    except OSError as err:
        _log.error("%s: not removed: %s", path, err.strerror)


def _drop_logs(directory: str) -> None:
    """Remove all but the newest logs of earlier runs."""
    logs = [path for path in _listed(directory) if path.endswith(".log")]
    for path in sorted(logs, key=os.path.getmtime)[:-LOGS]:
        files.remove_file(path)
