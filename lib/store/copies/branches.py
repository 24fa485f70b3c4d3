"""Histories that lost: kept as files, listed, and left out of elections.

A master that wrote changes which no majority had, or an administrator who accepted
loss, leaves a copy with changes that the cluster does not have. Before a whole copy
of the present master replaces it, its file is kept beside the store; `KEPT` files
remain. Of older ones, and of all of a node that is demoted, which must keep no
configuration, a *summary* remains: what was changed, without the values. Files that a
crash left half-written go.

A master that a minority was forced to elect can leave a copy with changes of its term
on a candidate. A later start of the present master would take that copy for proof that
its own was set back. So a master notes such a copy while it leads: the copy does not
count in an election, as if its node was silent, for as long as it stays as it was
noted. To count fewer copies is always safe, see `ganeti.decisions.quorum`.
"""

import contextlib
import glob
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.filesystem import files as plain_files
from ganeti.decisions.jobs import records
from ganeti.decisions.quorum import Copy
from ganeti.store import pools, wire
from ganeti.store.backend import NO_HISTORY, Group
from ganeti.store.base import Document
from ganeti.store.database import Database
from ganeti.store.schema import remove_file, translated
from ganeti.store.tables import Tables

_log: Final = logging.getLogger(__name__)

#: Files of lost histories that a node keeps.
KEPT: Final = 3
_SUFFIX: Final = ".lost-"
_MARK: Final = "branch"
#: Ending of a file that is being written.
_NEW: Final = ".new"
#: Beginning and ending of the name of a summary, and how many of them remain.
_SUMMARY: Final = "lost-changes-"
_JSON: Final = ".json"
_SUMMARIES: Final = 20
#: Most groups and jobs in a summary; older ones are left out.
_MAX_LISTED: Final = 10_000


class LostJob(msgspec.Struct, frozen=True):
    """A job as a lost history has it: id, status and summaries of the opcodes."""

    job_id: int
    status: str
    opcodes: list[str]


class LostGroup(msgspec.Struct, frozen=True):
    """A lost group: revision, number of the term, and a line per change."""

    revision: int
    term: int
    changes: list[str]


class Branch(msgspec.Struct, frozen=True):
    """Changes in a kept file that the copy which replaced it lacks.

    Attributes:
        path: of the file.
        groups: lost groups in order.
        is_complete: false if older lost groups were no longer kept in the file.
        jobs: jobs that the lost groups changed, by id.
        is_compared: false if the node was demoted before its copy was compared with
            the master's: then the changes may be lost.
    """

    path: str
    groups: list[LostGroup]
    is_complete: bool
    jobs: list[LostJob]
    is_compared: bool = True


def keep(db: Database, copy: wire.Copy) -> str:
    """Save an open file beside it, and return the path.

    The change log of the saved file holds only what the copy which replaces the open
    file lacks.

    Raises:
        StorageError: the disk failed.
    """
    position = db.position()
    name = f"{position.written:06}-{position.revision:010}-{position.digest.hex()[:8]}"
    path = f"{db.file.path}{_SUFFIX}{name}"
    _remove_unfinished(db.file.path)
    # The name follows from the content, so a replacement that is repeated after a crash
    # keeps no second file.
    if not os.path.exists(path):
        db.file.save_as(f"{path}{_NEW}")
        _mark(f"{path}{_NEW}", {copy.digest, *copy.history})
        with translated(path):
            os.rename(f"{path}{_NEW}", path)
    for old in _databases(db.file.path)[:-KEPT]:
        _condense(old, db.file.path)
    return path


def condense_all(store_path: str) -> None:
    """Replace the kept files of a store by summaries.

    Raises:
        StorageError: the disk failed.
    """
    _remove_unfinished(store_path)
    for path in _databases(store_path):
        _condense(path, store_path)


def note_uncompared(db: Database, newest_term: int) -> None:
    """Save a summary of what only this copy may have, before it is removed.

    The present master has written to a copy that it has compared with its own. If it
    has not, the newest groups of the copy may be missing in the cluster: those of the
    term that wrote last.

    Args:
        db: the copy.
        newest_term: number of the newest term that this node knows.

    Raises:
        StorageError: the disk failed.
    """
    position = db.position()
    if not position.revision or position.written >= newest_term:
        return
    groups = [group for group in db.log.groups() if group.term == position.written]
    branch = Branch("", _listed(groups), False, _jobs(groups, db.tables), False)
    if groups:
        name = f"{position.written:06}-{position.revision:010}"
        _save(branch, name, db.file.path)


def _condense(path: str, store_path: str) -> None:
    """Replace a kept file by its summary; one that cannot be read goes without."""
    _log.info("replacing the lost history %s by a summary", path)
    try:
        branch = read(path)
    except errors.ConfigurationError as err:
        _log.warning("the lost history %s cannot be read: %s", path, err)
    else:
        with translated(path):
            since = os.stat(path).st_mtime
        _save(branch, path.rpartition(_SUFFIX)[2], store_path, since)
    remove_file(path)


def _save(
    branch: Branch, name: str, store_path: str, since: float | None = None
) -> None:
    """Write a summary, as old as the file that it replaces."""
    listed = Branch(
        "",
        branch.groups[-_MAX_LISTED:],
        branch.is_complete and len(branch.groups) <= _MAX_LISTED,
        branch.jobs[-_MAX_LISTED:],
        branch.is_compared,
    )
    path = os.path.join(os.path.dirname(store_path), f"{_SUMMARY}{name}{_JSON}")
    with translated(path):
        times = None if since is None else (since, since)
        plain_files.write_file(path, msgspec.json.encode(listed), times=times)
        for old in _summaries(store_path)[:-_SUMMARIES]:
            os.unlink(old)


def _remove_unfinished(store_path: str) -> None:
    for path in glob.glob(f"{glob.escape(store_path)}{_SUFFIX}*{_NEW}*"):
        remove_file(path)


def _mark(path: str, known: set[bytes]) -> None:
    """Leave in a file's change log only what follows a known point."""
    db = Database(path, create=False)
    try:
        log = db.log.groups()
        # The last common point: groups up to it are in the copy that replaces the file,
        # so only those after it are lost.
        shared = [at for at, group in enumerate(log, 1) if group.digest in known]
        count = shared[-1] if shared else 0
        # Without a common point the groups before the log may be lost as well.
        is_complete = bool(shared) or bool(log and log[0].parent in known)
        db.log.forget(log[:count])
        row = ("meta", _MARK, b"complete" if is_complete else b"incomplete")
        db.append([], db.position(), term=db.position().term, extra=[row])
        db.file.checkpoint()
    finally:
        db.close()


def files(store_path: str) -> list[str]:
    """Return the kept files of a store and the summaries, the oldest first."""
    return _by_age([*_databases(store_path), *_summaries(store_path)])


def _databases(store_path: str) -> list[str]:
    pattern = f"{glob.escape(store_path)}{_SUFFIX}*[0-9a-f]"
    paths = [path for path in glob.glob(pattern) if not path.endswith(("-wal", "-shm"))]
    return _by_age(paths)


def _summaries(store_path: str) -> list[str]:
    directory = glob.escape(os.path.dirname(store_path))
    return _by_age(glob.glob(os.path.join(directory, f"{_SUMMARY}*{_JSON}")))


def _by_age(paths: list[str]) -> list[str]:
    dated = []
    for path in paths:
        # The node daemon may remove one at any moment.
        with contextlib.suppress(FileNotFoundError):
            dated.append((os.stat(path).st_mtime_ns, path))
    return [path for _time, path in sorted(dated)]


def read(path: str) -> Branch:
    """Return what a kept file, or a summary, has and its cluster lacks.

    Raises:
        ConfigurationError: the file is missing or damaged.
        StorageError: the disk failed.
    """
    if path.endswith(_JSON):
        return _read_summary(path)
    db = Database(path, create=False)
    try:
        groups = db.log.groups()
        is_complete = db.tables.read("meta", _MARK) == b"complete"
        return Branch(path, _listed(groups), is_complete, _jobs(groups, db.tables))
    finally:
        db.close()


def _read_summary(path: str) -> Branch:
    try:
        branch = msgspec.json.decode(
            plain_files.read_file(path, max_size=plain_files.WHOLE_STATE), type=Branch
        )
    except FileNotFoundError as err:
        raise errors.ConfigurationError(f"{path}: there is no such file") from err
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err
    return msgspec.structs.replace(branch, path=path)


def _listed(groups: list[Group]) -> list[LostGroup]:
    return [LostGroup(group.revision, group.term, _describe(group)) for group in groups]


def _jobs(groups: list[Group], lost: Tables) -> list[LostJob]:
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


def _describe(group: Group) -> list[str]:
    """Return one line per record or document that a group changed."""
    acts: dict[tuple[str, str], str] = {}
    for table, key, data in wire.rows_of(group):
        act = "remove" if data is None else "set"
        if table == pools.TABLE and (network := pools.owner(key)) != key:
            acts.setdefault((table, network), "set")
        else:
            acts[table, key] = act
    return [f"{act} {table} {key}".rstrip() for (table, key), act in acts.items()]


_TABLE: Final = "meta"
#: Beginning of the keys; a node uuid follows.
_PREFIX: Final = "branch/"


def newer(status: Any, cluster: str, number: int) -> str:
    """Return the digest of a copy that a master of a later term wrote, else "".

    Args:
        status: answer of a candidate; one that is wrong has no such copy.
        cluster: uuid of the cluster.
        number: of the present master's term.

    >>> digest = "AB" * 16
    >>> newer({"cluster": "c", "written": 4, "digest": digest}, "c", 3)
    'abababababababababababababababab'
    >>> newer({"cluster": "c", "written": 2, "digest": digest}, "c", 3)
    ''
    """
    try:
        digest = bytes.fromhex(status["digest"])
        is_newer = status["cluster"] == cluster and int(status["written"]) >= number
    except (KeyError, TypeError, ValueError):
        return ""
    return digest.hex() if is_newer and len(digest) == len(NO_HISTORY) else ""


def document(node: str, digest: str) -> Document:
    """Return what notes that a node's copy, while it has a digest, is such a copy."""
    return Document(_TABLE, f"{_PREFIX}{node}", digest.encode())


def is_known(read: Callable[[str, str], bytes | None], node: str, digest: str) -> bool:
    """Return whether a node's copy was noted.

    Args:
        read: returns the document of a table and key.
        node: uuid of the candidate.
        digest: of its copy, in hexadecimal digits.
    """
    return bool(digest) and read(_TABLE, f"{_PREFIX}{node}") == digest.encode()


def without_known(
    read: Callable[[str, str], bytes | None], copies: Mapping[str, Copy]
) -> dict[str, Copy]:
    """Return copies with those that were noted as empty ones, which do not count."""
    return {
        node: Copy(0, 0) if is_known(read, node, copy.digest) else copy
        for node, copy in copies.items()
    }
