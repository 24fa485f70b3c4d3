"""Histories that lost: kept as files, and listed.

A master that wrote changes which no majority had, or an administrator who accepted
loss, leaves a copy with changes that the cluster does not have. Before a whole copy
of the present master replaces it, its file is kept beside the store. The oldest files
go: `KEPT` remain. Files that a crash left half-written go, too.
"""

import glob
import logging
import os
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.jqueue import records
from ganeti.store import wire
from ganeti.store.backend import Group
from ganeti.store.database import Database
from ganeti.store.sqlite_file import remove_file, translated

_log: Final = logging.getLogger(__name__)

#: Files of lost histories that a node keeps.
KEPT: Final = 3
_SUFFIX: Final = ".lost-"
_MARK: Final = "branch"
#: Ending of a file that is being written.
_NEW: Final = ".new"


class LostJob(NamedTuple):
    """A job as a lost history has it: id, status and summaries of the opcodes."""

    job_id: int
    status: str
    opcodes: list[str]


class Branch(NamedTuple):
    """Changes in a kept file that the copy which replaced it lacks.

    Attributes:
        path: of the file.
        groups: lost groups in order.
        is_complete: false if older lost groups were no longer kept in the file.
        jobs: jobs that the lost groups changed, by id.
    """

    path: str
    groups: list[Group]
    is_complete: bool
    jobs: list[LostJob]


def keep(db: Database, copy: wire.Copy) -> str:
    """Save an open file beside it, and return the path.

    The change log of the saved file holds only what the copy which replaces the open
    file lacks.

    Raises:
        StorageError: the disk failed.
    """
    position = db.position()
    name = f"{position.written:06}-{position.revision:010}-{position.digest.hex()[:8]}"
    path = f"{db.path}{_SUFFIX}{name}"
    _remove_unfinished(db.path)
    # The name follows from the content, so a replacement that is repeated after a crash
    # keeps no second file.
    if not os.path.exists(path):
        db.save_as(f"{path}{_NEW}")
        _mark(f"{path}{_NEW}", {copy.digest, *copy.history})
        with translated(path):
            os.rename(f"{path}{_NEW}", path)
    for old in files(db.path)[:-KEPT]:
        remove_file(old)
    return path


def remove_all(store_path: str) -> None:
    """Remove the kept files of a store.

    Raises:
        StorageError: the disk failed.
    """
    _remove_unfinished(store_path)
    for path in files(store_path):
        _log.info("removing the lost history %s", path)
        remove_file(path)


def _remove_unfinished(store_path: str) -> None:
    for path in glob.glob(f"{glob.escape(store_path)}{_SUFFIX}*{_NEW}*"):
        remove_file(path)


def _mark(path: str, known: set[bytes]) -> None:
    """Leave in a file's change log only what follows a known point."""
    db = Database(path, create=False)
    try:
        log = db.log()
        # The last common point: groups up to it are in the copy that replaces the file,
        # so only those after it are lost.
        shared = [at for at, group in enumerate(log, 1) if group.digest in known]
        count = shared[-1] if shared else 0
        # Without a common point the groups before the log may be lost as well.
        is_complete = bool(shared) or bool(log and log[0].parent in known)
        db.forget(log[:count])
        row = ("meta", _MARK, b"complete" if is_complete else b"incomplete")
        db.append([], db.position(), term=db.position().term, extra=[row])
        db.checkpoint()
    finally:
        db.close()


def files(store_path: str) -> list[str]:
    """Return the kept files of a store, oldest first."""
    pattern = f"{glob.escape(store_path)}{_SUFFIX}*[0-9a-f]"
    paths = [path for path in glob.glob(pattern) if not path.endswith(("-wal", "-shm"))]
    return sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, path))


def read(path: str) -> Branch:
    """Return what a kept file has and the copy that replaced it lacks.

    Raises:
        ConfigurationError: the file is missing or damaged.
        StorageError: the disk failed.
    """
    db = Database(path, create=False)
    try:
        groups = db.log()
        is_complete = db.read("meta", _MARK) == b"complete"
        return Branch(path, groups, is_complete, _jobs(groups, db))
    finally:
        db.close()


def _jobs(groups: list[Group], lost: Database) -> list[LostJob]:
    keys = {
        key
        for group in groups
        for table, key, _data in wire.rows_of(group)
        if table in ("jobs", "archive") and "/" not in key
    }
    jobs = []
    for key in sorted(keys, key=lambda text: (len(text), text)):
        data = lost.read("jobs", key) or lost.read("archive", key)
        if data is not None:
            jobs.append(_job(key, data))
    return jobs


def _job(key: str, data: bytes) -> LostJob:
    try:
        job = records.decode_job(data)
    except errors.JobFileCorrupted:
        return LostJob(int(key) if key.isdigit() else 0, "unreadable", [])
    return LostJob(job.id, job.status.value, [op.summary() for op in job.ops])


def describe(group: Group) -> list[str]:
    """Return one line per record or document that a group changed."""
    return [
        f"{'remove' if data is None else 'set'} {table} {key}".rstrip()
        for table, key, data in wire.rows_of(group)
    ]
