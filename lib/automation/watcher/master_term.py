"""A new term for a master that a candidate refuses.

Masters that a minority was forced to elect can leave a term on a candidate that is not
below the present master's. The candidate refuses the present master from then on, until
that takes a higher term, which each start of the master daemon does.
"""

import logging
import os
from typing import Final

from ganeti.automation.watcher import daemons
from ganeti.automation.watcher.effects import Watch
from ganeti.base.filesystem import files
from ganeti.protocols import luxi

_log = logging.getLogger(__name__)
_MASTER: Final = "ganeti-masterd"
#: Its time is that of the last restart; a candidate that refuses every term must not
#: have the master daemon restarted by each run.
_STAMP: Final = "watcher.new-term"
_PAUSE_S: Final = 3600.0
_ACTIVE: Final = ["|", ["==", "status", "running"], ["==", "status", "canceling"]]


def renew(watch: Watch, client: luxi.Client) -> bool:
    """Restart the master daemon if a candidate refuses its term and no job is running.

    Returns:
        whether it was restarted; then the connection is of no use any more.

    Raises:
        OpExecError: it does not stop or does not start.
        GenericError: the master daemon does not answer.
    """
    copies = client.call("QueryCopies")["copies"]
    refusing = sorted(copy["name"] for copy in copies if copy.get("wants_restart"))
    if not refusing:
        return False
    names = ", ".join(refusing)
    path = watch.paths.data(_STAMP)
    now = watch.clock.time()
    if os.path.exists(path) and abs(now - os.stat(path).st_mtime) < _PAUSE_S:
        _log.warning(
            "master candidate %s refuses the term of the master; the master daemon was"
            " restarted for that less than %d minutes ago",
            names,
            _PAUSE_S // 60,
        )
        return False
    if client.call("Query", ["job", ["id"], _ACTIVE])["data"]:
        _log.info(
            "master candidate %s refuses the term of the master; the master daemon is"
            " restarted when no job is running",
            names,
        )
        return False
    _log.warning(
        "master candidate %s refuses the term of the master; restarting the master"
        " daemon, which takes a higher one",
        names,
    )
    files.write_file(path, b"", mode=0o600, times=(now, now))
    daemons.restart(watch, _MASTER)
    return True
