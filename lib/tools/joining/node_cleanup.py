"""``node-cleanup``: remove a node's cluster files when the master cannot do it.

Stops all daemons and removes certificates, secrets, configuration and ssconf.
"""

import logging
import os
import sys
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, SystemRunner
from ganeti.bootstrap import cluster_files
from ganeti.node.services import Services
from ganeti.tools import common

_log = logging.getLogger(__name__)
NAME: Final = "node-cleanup"
#: Directory of copies of removed files, below the backup directory.
BACKUP_DIR: Final = "ganeti-node-cleanup"


def main() -> int:
    """Run the tool."""
    parser = common.parser(NAME, "Removes the files of the cluster from this node.")
    parser.add_argument(
        "--yes-do-it", "--ya-rly", action="store_true", help="confirm the removal"
    )
    parser.add_argument("--no-backup", action="store_true", help="keep no copies")
    options = parser.parse_args()
    common.start_log(NAME, options)
    if not options.yes_do_it:
        sys.stderr.write(
            f"{NAME}: removes all cluster files of this node;"
            " confirm with --yes-do-it\n"
        )
        return 1

    def work() -> None:
        clean_up(common.own_paths(), SystemRunner(), keep_copies=not options.no_backup)

    return common.run(NAME, work)


def clean_up(paths: Paths, process: Runner, *, keep_copies: bool) -> None:
    """Stop all daemons and remove the files of the cluster.

    Raises:
        OpExecError: the daemons do not stop; nothing was removed.
    """
    Services(paths, process).stop_all()
    target = os.path.join(paths.backup_dir, BACKUP_DIR)
    for path in cluster_files.of_node(paths):
        if not os.path.isfile(path):
            raise errors.GenericError(f"{path}: wanted a file, found something else")
        if keep_copies:
            _log.info("%s: copied to %s", path, files.backup_file(path, target))
        files.remove_file(path)
