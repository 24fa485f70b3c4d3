"""What is known of the cluster besides its record, and the sources of queries."""

import contextlib
import functools
from collections.abc import Iterator

from ganeti import jqueue, query
from ganeti.locking import LockInfo
from ganeti.masterd.calls import World
from ganeti.query import cluster_info
from ganeti.utils import files

#: File whose content says until when watchers rest.
_PAUSE_FILE = "watcher.pause"
_PAUSE_MODE = 0o644


def pause_path(world: World) -> str:
    """Return the file that says until when watchers rest."""
    return world.paths.data(_PAUSE_FILE)


def watcher_pause(world: World) -> float | None:
    """Return until when watchers rest, None if they do not."""
    with contextlib.suppress(OSError, ValueError):
        until = float(files.read_file(pause_path(world)).decode().strip())
        return until if until > world.clock.time() else None
    return None


def write_watcher_pause(world: World, until: float | None) -> None:
    """Set or end the rest of the watcher on this node."""
    if until is None:
        files.remove_file(pause_path(world))
    else:
        data = f"{until:.0f}\n".encode()
        files.write_file(pause_path(world), data, mode=_PAUSE_MODE)


class _Jobs:
    """The job queue and its archive, as queries read them."""

    def __init__(self, world: World) -> None:
        self._queue = world.queue

    def job(self, job_id: int) -> "jqueue.Job | None":
        return self._queue.job(job_id)

    def jobs(self, *, with_logs: bool = True) -> "list[jqueue.Job]":
        return self._queue.jobs(with_logs=with_logs)

    def archived_jobs(self) -> "Iterator[jqueue.Job]":
        for job_id in self._queue.archived_ids():
            job = self._queue.job(job_id)
            if job is not None:
                yield job


def cluster_facts(world: World) -> query.ClusterFacts:
    """Return what is known of the cluster besides its record."""
    bits, machine = cluster_info.architecture()
    return query.ClusterFacts(
        drain_flag=world.queue.is_drained,
        watcher_pause=watcher_pause(world),
        architecture=(bits, machine),
        vcs_version=cluster_info.build_text(),
    )


def _locks(world: World) -> list[LockInfo]:
    """Return the locks in use, and the jobs that other jobs wait for."""
    jobs = [
        LockInfo(f"job/{job_id}", None, (), (("job", _job_names(waiting)),))
        for job_id, waiting in world.queue.dependencies()
        if waiting
    ]
    return [*jobs, *world.locks.lock_info()]


def _job_names(ids: list[int]) -> tuple[str, ...]:
    return tuple(f"Job{job_id}" for job_id in ids)


def sources(world: World) -> query.Sources:
    """Return what queries are answered from now."""
    return query.Sources(
        world.config.snapshot(),
        rpc=world.rpc,
        jobs=_Jobs(world),
        locks=functools.partial(_locks, world),
        facts=functools.partial(cluster_facts, world),
    )
