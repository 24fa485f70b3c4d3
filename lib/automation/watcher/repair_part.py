"""Part of a run on the master: repairs of instances on drained and offline nodes.

``ganeti.decisions.repair`` decides by tags alone: without them nothing is repaired.
"""

import logging
import uuid
from typing import Final

from ganeti.automation import autorepair
from ganeti.automation.watcher.effects import Watch
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import jobqueue, versions
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.repair import duties
from ganeti.protocols import luxi

_log = logging.getLogger(__name__)
#: Seconds that a job waits first, so that its id gets into the tag before it locks the
#: instance. A tag that is late does no harm: the job's reason trail names the repair.
_JOB_DELAY_S: Final = 5.0
#: Seconds for all changes of tags. They take milliseconds, unless a job holds the lock
#: of an instance; that instance then waits for the next run.
_WAIT_S: Final = 60.0


def run(watch: Watch, client: luxi.Client) -> bool:
    """Advance all repairs by one step; return whether everything could be done.

    An error does not keep the rest of the watcher from its work.
    """
    try:
        with autorepair.exclusive(watch.paths, timeout_s=0):
            return advance(client, watch.clock)
    except errors.LockError as err:
        _log.info("autorepair: another program repairs instances: %s", err)
        return True
    except (errors.JobQueueFull, errors.JobQueueDrainError) as err:
        _log.warning("autorepair: the master accepts no jobs: %s", err)
        return True
    except (errors.GenericError, DataError, OSError) as err:
        text = err.args[0] if isinstance(err, errors.GenericError) and err.args else err
        _log.error("autorepair: %s", text)
        return False


def advance(client: luxi.Client, clock: Clock) -> bool:
    """Do the same over a connection; the caller lets nobody else repair.

    Raises:
        GenericError: the master daemon does not answer, or accepts no jobs.
        DataError: its answer is malformed.
    """
    if duties.read(client.call("QueryClusterInfo")).repairs:
        _log.info("autorepair: left to ganeti-maintd, as the cluster is set")
        return True
    settings = autorepair.RunSettings(
        source=jobqueue.OPCODE_REASON_SRC_WATCHER,
        reason="autorepair",
        comment=f"automated repairs by ganeti-watcher {versions.RELEASE_VERSION}",
        job_delay_s=_JOB_DELAY_S,
        wait_s=_WAIT_S,
    )
    reporter = autorepair.LogReporter(_log)
    repairs = autorepair.RepairRun(
        client, clock, settings, reporter, lambda: str(uuid.uuid4())
    )
    count = repairs.all()
    _log.info("autorepair: %s", autorepair.summary(count) or "no instances")
    return not repairs.has_failed
