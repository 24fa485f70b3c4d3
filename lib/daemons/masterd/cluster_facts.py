"""Cluster data outside of the configuration, for queries: jobs, locks, settings."""

import contextlib
from collections.abc import Iterator

from ganeti.base.clock import Clock
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.master import jqueue, query
from ganeti.master.locking import LockInfo, LockManager
from ganeti.master.query import cluster_info

#: File with the time until which watchers pause.
_PAUSE_FILE = "watcher.pause"
_PAUSE_MODE = 0o644


def pause_path(paths: Paths) -> str:
    """Return the file with the time until which watchers pause."""
    return paths.data(_PAUSE_FILE)


def watcher_pause(paths: Paths, clock: Clock) -> float | None:
    """Return the time until which watchers pause, or None."""
    with contextlib.suppress(OSError, ValueError):
        until = float(files.read_file(pause_path(paths)).decode().strip())
        return until if until > clock.time() else None
    return None


def write_watcher_pause(paths: Paths, until: float | None) -> None:
    """Begin or end the pause of the watcher on this node."""
    if until is None:
        files.remove_file(pause_path(paths))
    else:
        data = f"{until:.0f}\n".encode()
        files.write_file(pause_path(paths), data, mode=_PAUSE_MODE)


class QueueJobs:
    """The job queue and its archive as a source of queries."""

    def __init__(self, queue: jqueue.JobQueue) -> None:
        self._queue = queue

    def job(self, job_id: int) -> jqueue.Job | None:
        """Return a job, live or archived."""
        return self._queue.job(job_id)

    def jobs(self, *, with_logs: bool = True) -> list[jqueue.Job]:
        """Return all live jobs."""
        return self._queue.jobs(with_logs=with_logs)

    def ids(self) -> list[int]:
        """Return the ids of all live jobs, sorted."""
        return self._queue.live_ids()

    def archived_jobs(self) -> Iterator[jqueue.Job]:
        """Yield all archived jobs."""
        for job_id in self._queue.archived_ids():
            job = self._queue.job(job_id)
            if job is not None:
                yield job


def read(queue: jqueue.JobQueue, paths: Paths, clock: Clock) -> query.ClusterFacts:
    """Return the cluster data outside of the configuration."""
    bits, machine = cluster_info.architecture()
    return query.ClusterFacts(
        drain_flag=queue.is_drained,
        watcher_pause=watcher_pause(paths, clock),
        architecture=(bits, machine),
        vcs_version=cluster_info.build_text(),
    )


def locks(queue: jqueue.JobQueue, manager: LockManager) -> list[LockInfo]:
    """Return the locks in use, and the jobs that other jobs wait for."""
    jobs = [
        LockInfo(f"job/{job_id}", None, (), (("job", _job_names(waiting)),))
        for job_id, waiting in queue.dependencies()
        if waiting
    ]
    return [*jobs, *manager.lock_info()]


def _job_names(ids: list[int]) -> tuple[str, ...]:
    return tuple(f"Job{job_id}" for job_id in ids)
