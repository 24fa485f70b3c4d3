"""Part of a run on the master: jobs that release reservations that have expired.

The job checks again whether the reservation has expired, as it may have been extended,
or the instance created, since the query.
"""

import logging
import time
from typing import Any, Final

from ganeti.automation.watcher import reports
from ganeti.automation.watcher.effects import Watch
from ganeti.automation.watcher.jobs import Jobs
from ganeti.base import errors
from ganeti.base.text.control_chars import escape
from ganeti.protocols import luxi

_log = logging.getLogger(__name__)
_FIELDS: Final = ("name", "uuid", "forthcoming", "expires", "owner")


def run(watch: Watch, client: luxi.Client) -> bool:
    """Submit the jobs; return whether all were accepted.

    An error does not keep the rest of the watcher from its work.
    """
    try:
        return _run(watch, client)
    except (errors.JobQueueFull, errors.JobQueueDrainError) as err:
        _log.warning("reservations: the master accepts no jobs: %s", err)
        return True
    except errors.GenericError as err:
        _log.error("reservations: %s", err.args[0] if err.args else err)
        return False


def _run(watch: Watch, client: luxi.Client) -> bool:
    now = watch.clock.time()
    rows = reports.query_rows(client, "instance", _FIELDS, ["?", "forthcoming"])
    expired = [
        row for row in rows if row["forthcoming"] and 0 < (row["expires"] or 0) <= now
    ]
    if not expired:
        return True
    pending = reports.unfinished(client)
    jobs = Jobs(client, watch.clock, wait_s=0)
    wanted = {
        str(row["name"]): jobs.op(
            "OP_INSTANCE_REMOVE",
            _reason(row),
            instance_name=row["uuid"],
            if_expired=True,
        )
        for row in expired
        if f"INSTANCE_REMOVE({row['uuid']})" not in pending
    }
    accepted, refused = jobs.submit(wanted)
    for name, job_id in sorted(accepted.items()):
        _log.info("reservation %s has expired, released by job %d", name, job_id)
    for name, text in sorted(refused.items()):
        _log.error("reservation %s has expired, but stays: %s", name, text)
    return not refused


def _reason(row: dict[str, Any]) -> str:
    owner = f" of {escape(row['owner'])}" if row["owner"] else ""
    ended = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row["expires"]))
    return f"reservation{owner} expired at {ended}"
