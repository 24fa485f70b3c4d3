"""Backup of the store while the master runs, and its restoration.

A backup is one file in the form of the store of a node, whichever engine the cluster
uses. A restoration is a commit on top of the present store, under a new term, so the
commit rule or etcd makes it durable, and revisions, serials and job ids never go back.
"""

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import ssh
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.base.tls import authority
from ganeti.bootstrap import store_access
from ganeti.bootstrap.options import Feedback
from ganeti.decisions.jobs import records
from ganeti.master.config import higher_numbers
from ganeti.master.config.config import HEADER_KEY, Header
from ganeti.model.objects import CLUSTER_KEY, TABLES, Cluster, Snapshot, Update
from ganeti.node.services import Services
from ganeti.store import Change, Document, choice, schema
from ganeti.store.database import Database
from ganeti.store.etcd import Mirror
from ganeti.store.numbers import LAST_JOB

#: Bytes of documents in one commit.
_BATCH_BYTES: Final = 256 * 1024


class BackedUp(NamedTuple):
    """The content of a backup."""

    revision: int
    snapshot: Snapshot


def back_up(paths: Paths, path: str, clock: Clock) -> BackedUp:
    """Write a backup of everything that was acknowledged, while the master runs.

    Args:
        paths: of the master.
        path: new file; it is complete when it appears.
        clock: paces requests.

    Returns:
        What it has.

    Raises:
        OpPrereqError: the file exists, or cannot be written.
        StorageError: the disk failed, or no majority of the servers answers.
        ConfigurationError: the store is damaged.
    """
    if os.path.lexists(path):
        raise errors.OpPrereqError(f"{path}: exists already", ecodes.ECODE_EXISTS)
    directory = os.path.dirname(path)
    if not os.path.isdir(directory or "."):
        raise refusal(f"{directory}: no such directory")
    new = f"{path}.new"
    servers = choice.read(paths)
    try:
        if servers is None:
            db = Database(paths.store_db, create=False, read_only=True)
            try:
                db.file.save_as(new)
            finally:
                db.close()
        else:
            # The servers have what was acknowledged; the file of this node follows.
            mirror = Mirror(servers, new, clock)
            try:
                mirror.catch_up()
            finally:
                mirror.close()
        # The store has private parameters of instances.
        os.chmod(new, 0o600)
        # Read before it gets its name: a file that cannot be restored must not look
        # like a backup.
        done = read(new)
        os.rename(new, path)
        files.sync_dir(directory or ".")
    finally:
        schema.remove_file(new)
    return done


def read(path: str) -> BackedUp:
    """Read the configuration of a backup.

    Raises:
        OpPrereqError: the file is no complete backup of this release or an earlier one.
    """
    try:
        snapshot = store.read_snapshot(path)
    except errors.GenericError as err:
        raise refusal(f"{path}: no backup of a store: {err}") from err
    if not snapshot.revision or CLUSTER_KEY not in snapshot.table("cluster"):
        raise refusal(f"{path}: no backup of a store: it has no cluster")
    return BackedUp(snapshot.revision, snapshot)


def restore(
    paths: Paths, process: Runner, clock: Clock, path: str, *, feedback: Feedback
) -> None:
    """Make the configuration that of a backup, and add its finished jobs.

    Jobs of the present store stay. Jobs that had not finished when the backup was made
    are left out, unless the present store has them: they would be done again.

    Raises:
        OpPrereqError: no usable backup of this cluster; nothing was changed.
        OpExecError: the store could not be written; the master daemons are stopped.
    """
    done = read(path)
    uuid = check(paths, done.snapshot)
    services = Services(paths, process)
    feedback("Stopping the master daemons")
    services.stop_master()
    is_lost = _put_first(paths, path, feedback)
    source = Database(path, create=False, read_only=True)
    try:
        feedback(f"Restoring revision {done.revision}")
        with store_access.opened(paths, clock, uuid) as engine:
            _write(engine, source, done, uuid, feedback, is_lost=is_lost)
            # Only after the last commit: a repetition has to know that the store was
            # lost.
            files.remove_file(_note(paths))
            # While this has the leadership, no other candidate takes over.
            feedback("Starting the master daemons")
            if choice.is_etcd(paths):
                services.start_master()
        if not choice.is_etcd(paths):
            services.start_master()
    except (errors.StorageError, errors.TermError, errors.CommitUnknownError) as err:
        raise errors.OpExecError(
            f"the store was not restored completely: {err}. This can be repeated"
        ) from err
    finally:
        source.close()


def steps(path: str, done: BackedUp) -> list[str]:
    """Return the steps of `restore` as text, in order."""
    names = done.snapshot
    return [
        "stop the master daemons",
        (
            f"replace the configuration by that of {path}: revision {done.revision},"
            f" {len(names.nodes)} nodes, {len(names.instances)} instances"
        ),
        "add the finished jobs of the backup that the store lacks",
        "start the master daemons, which write the ssconf files of all nodes",
    ]


def check(paths: Paths, backup: Snapshot) -> str:
    """Return the uuid of this node, which must be able to be master with a backup.

    Raises:
        OpPrereqError: the backup is of another cluster, or this node is no candidate.
    """
    uuid = backup.uuid_of("nodes", paths.hostname)
    if uuid is None or not backup.nodes[uuid].master_candidate:
        raise errors.OpPrereqError(
            f"{paths.hostname} is not a master candidate in the backup",
            ecodes.ECODE_STATE,
        )
    own = authority.node_uuid(paths.client_pem)
    if own not in (None, uuid):
        raise errors.OpPrereqError(
            f"wanted {paths.hostname} with the uuid {own} of {paths.client_pem}, found"
            f" {uuid}: the backup is of another cluster, or of an earlier installation"
            " of this node",
            ecodes.ECODE_STATE,
        )
    try:
        snapshot = store.read_snapshot(paths.store_db)
    except store.VersionError as err:
        raise errors.OpPrereqError(str(err), ecodes.ECODE_STATE) from err
    except errors.GenericError:
        return uuid  # lost or damaged, which is why it is restored
    present = snapshot.table("cluster").get(CLUSTER_KEY)
    if present is not None and present.uuid != backup.cluster.uuid:
        raise errors.OpPrereqError(
            f"wanted a backup of cluster {present.uuid}, found one of cluster"
            f" {backup.cluster.uuid}",
            ecodes.ECODE_STATE,
        )
    return uuid


def _note(paths: Paths) -> str:
    """Return the file that says, until the restoration is complete, what was lost."""
    return f"{paths.store_db}.restoring"


def _lack(paths: Paths) -> str:
    """Return why this node has no store; one that is damaged is set aside."""
    if not os.path.exists(paths.store_db):
        return f"{paths.store_db} is missing"
    try:
        store.check_pages(paths.store_db)
    except store.VersionError:
        return ""  # the writer that opens it brings it to this version, or says why not
    except errors.ConfigurationError as err:
        aside = f"{paths.store_db}.damaged"
        schema.set_aside(paths.store_db, aside)
        return f"{err}. It is kept as {aside}"
    return ""


def _put_first(paths: Paths, path: str, feedback: Feedback) -> bool:
    """Give a node without its file the backup; return whether the file was lost.

    That is noted in a file, so that a repetition knows it, too: the present jobs are
    those of the backup then, and the unfinished ones must not be done again.
    """
    if choice.is_etcd(paths):
        return False
    lack = _lack(paths)
    if lack:
        feedback(f"{lack}; beginning with the backup")
        files.write_file(_note(paths), b"", mode=0o600)
        _copy(path, paths.store_db)
    return os.path.exists(_note(paths))


def _copy(path: str, target: str) -> None:
    """Copy a backup to a file that is there as a whole or not at all.

    A part of it would be taken for a damaged store, and set aside in place of the store
    that was set aside before.
    """
    new = f"{target}.new"
    source = Database(path, create=False, read_only=True)
    try:
        source.file.save_as(new)
        schema.remove_file(target)
        os.rename(new, target)
        files.sync_dir(os.path.dirname(target))
    finally:
        source.close()
        schema.remove_file(new)


def _write(
    engine: store.Engine,
    source: Database,
    done: BackedUp,
    uuid: str,
    feedback: Feedback,
    *,
    is_lost: bool,
) -> None:
    present = engine.snapshot()
    changes: list[Change] = list(_records(present, done.snapshot, uuid))
    # A new store in etcd has no revision.
    is_lost = is_lost or not present.revision
    if is_lost:
        changes += _unfinished(engine)
    # Records and numbers in one commit: if it ended in between, serials and job ids
    # that were in use could be given out again.
    engine.commit([*changes, *_numbers(engine, source, is_lost=is_lost)])
    skipped: list[int] = []
    batch, size = list[Document](), 0
    # The rows of a job are never divided: a repetition takes a job that it finds as
    # complete, and would leave out the rest of its log.
    for group in _jobs(engine, source, skipped):
        batch += group
        size += sum(len(document.data or b"") for document in group)
        if size >= _BATCH_BYTES:
            engine.commit(batch)
            batch, size = [], 0
    if batch:
        engine.commit(batch)
    if skipped:
        feedback(
            "Not restored, since they had not finished when the backup was made: jobs"
            f" {', '.join(map(str, sorted(skipped)))}"
        )


def _records(present: Snapshot, backup: Snapshot, uuid: str) -> Iterator[Update]:
    """Yield the changes that make the present records those of a backup."""
    for table in TABLES:
        old, new = present.table(table), backup.table(table)
        for key in old:
            if key not in new:
                yield Update(table, key, None)
        for key, record in new.items():
            wanted = record
            if table == "cluster":
                wanted = _cluster(old.get(key), backup, uuid)
            if old.get(key) != wanted:
                yield Update(table, key, wanted)


def _cluster(old: Any, backup: Snapshot, uuid: str) -> Cluster:
    """Return the cluster of a backup with this master and the present certificates.

    Who has a certificate there may call all nodes, so only candidates of the backup do.
    """
    cluster = backup.cluster
    # Certificates that were renewed after the backup are those that the nodes have.
    known = old.candidate_certs if isinstance(old, Cluster) else {}
    candidates = {n.uuid for n in backup.nodes.values() if n.master_candidate}
    return cluster.replace(
        master_node=uuid,
        candidate_certs={
            key: digest
            for key, digest in {**cluster.candidate_certs, **known}.items()
            if key.removesuffix(ssh.CRYPTO_NEXT) in candidates
        },
        serial_no=max(cluster.serial_no, getattr(old, "serial_no", 0)) + 1,
    )


def _unfinished(engine: store.Engine) -> Iterator[Document]:
    """Yield the changes that remove the unfinished jobs of a store, and their logs."""
    for key, data in engine.scan("jobs"):
        if not records.decode_job(data).is_final:
            yield Document("jobs", key, None)
            for log_key, _line in engine.scan("joblogs", f"{key}/"):
                yield Document("joblogs", log_key, None)


def _numbers(
    engine: store.Engine, source: Database, *, is_lost: bool
) -> list[Document]:
    """Return the documents with serial and job id, higher than any known ones."""
    headers = [
        Header.decode(read("meta", HEADER_KEY))
        for read in (engine.read, source.tables.read)
    ]
    jobs = [
        int(read("meta", LAST_JOB) or b"0")
        for read in (engine.read, source.tables.read)
    ]
    serial, last = max(each.serial_no for each in headers) + 1, max(jobs)
    if is_lost:
        # It may have used some numbers.
        serial += higher_numbers.SKIPPED_SERIALS
        last += higher_numbers.SKIPPED_JOBS
    header = msgspec.structs.replace(headers[1], serial_no=serial)
    return [
        Document("meta", HEADER_KEY, msgspec.json.encode(header)),
        Document("meta", LAST_JOB, b"%d" % last),
    ]


def _jobs(
    engine: store.Engine, source: Database, skipped: list[int]
) -> Iterator[list[Document]]:
    """Yield the rows of each job that the store lacks; note those that are left out."""
    known = {key for key, _data in engine.scan("jobs")}
    known |= {key for key, _data in engine.scan("archive") if "/" not in key}
    for key, data in _scan(source, "archive"):
        if key.partition("/")[0] not in known:
            yield [Document("archive", key, data)]
    logs: dict[str, list[Document]] = {}
    for key, data in _scan(source, "joblogs"):
        logs.setdefault(key.partition("/")[0], []).append(
            Document("joblogs", key, data)
        )
    for key, data in _scan(source, "jobs"):
        if key in known:
            continue
        job = records.decode_job(data)
        if job.is_final:
            yield [Document("jobs", key, data), *logs.get(key, ())]
        else:
            skipped.append(job.id)


def _scan(source: Database, table: str) -> Iterator[tuple[str, bytes]]:
    after: str | None = None
    while rows := source.tables.scan_some(table, after, ""):
        yield from rows
        after = rows[-1][0]
