"""A master candidate's copy: what the node daemon does with calls from the master.

Each method is the node's side of the call of its name with the prefix ``store_``. What
a method changes is durable when it returns. All are thread-safe. The rule that they
keep is `ganeti.decisions.quorum`.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from ganeti.base import errors
from ganeti.decisions.quorum import Term, is_credible
from ganeti.store import features, numbers, schema, wire
from ganeti.store.backend import NO_HISTORY
from ganeti.store.copies import branches
from ganeti.store.database import Database
from ganeti.store.tables import SCAN_ROWS

_log = logging.getLogger(__name__)


class Replica:
    """The copy at a path; the file is made by the first `install` or `apply`."""

    def __init__(self, path: str) -> None:
        """Remember the path; nothing is opened yet."""
        self.path = path
        self._lock = threading.Lock()
        self._db: Database | None = None
        self._has_left = False

    def promise(self, term: Term) -> dict[str, Any]:
        """Promise a term to its owner and return what `status` returns.

        From now on, no master of a lower term can write here.

        Raises:
            TermError: the copy has promised a later term, or this one to another owner.
            StorageError: the disk failed.
        """
        with self._lock:
            return self._with_sound(lambda db: _promise(db, term))

    def apply(self, term: Term, base: int, data: str | bytes) -> dict[str, Any]:
        """Take over change-sets in order, or none of them.

        Args:
            term: the sender's.
            base: revision that the first one builds on.
            data: see `ganeti.store.wire`.

        Returns:
            what `status` returns but the numbers, and ``applied``: false when the copy
            is not at ``base`` or has another history; then nothing was changed.

        Raises:
            TermError: the copy has promised a later term, or this one to another owner.
            StorageError: the disk failed, or the data is damaged.
        """
        groups, extra, page = wire.decode_batch(data)
        if base and not os.path.exists(self.path):
            # Perhaps removed with the node's candidacy: not to be made again.
            return {**_EMPTY, "applied": False}

        def write(db: Database) -> dict[str, Any]:
            # In one use of the file: the promise and the data are durable together.
            position = db.position()
            if position.term != term:
                position = db.promise(term)
            is_applied = position.revision == base and db.append(
                groups, position, term=term, extra=extra, page=page
            )
            return {**_describe(db), "applied": is_applied}

        with self._lock:
            return self._with_sound(write)

    def install(self, term: Term, data: str | bytes) -> dict[str, Any]:
        """Replace everything but the archive with a copy of the master's.

        A copy that is left of another cluster is set aside. A copy of this cluster may
        hold changes that the master lacks: its file is kept, see
        `ganeti.store.copies.branches`.

        Returns:
            what `status` returns but the numbers.

        Raises:
            TermError: the copy has promised another term of the same cluster.
            StorageError: the disk failed, the data is damaged, or it is older than what
                this master has sent since.
        """
        copy = wire.decode_copy(data)
        with self._lock:
            self._part_from(copy.cluster())
            return self._with_sound(lambda db: _install(db, term, copy))

    def _part_from(self, cluster: str) -> None:
        """Set aside a copy that is of another cluster; its terms do not count here."""
        if self._has_left or not os.path.exists(self.path):
            return
        try:
            other = self._open().tables.cluster()
        except errors.ConfigurationError:
            return
        if other not in ("", cluster):
            _log.error(
                "the copy of the store is replaced: %s: wanted one of cluster %s, found"
                " one of cluster %s, which is kept as %s",
                *(self.path, cluster, other, self._damaged),
            )
            self._set_aside()

    def status(self) -> dict[str, Any]:
        """Return where the copy stands.

        Keys: ``revision``, ``term`` and ``owner`` of the promise, ``digest``
        (hexadecimal), ``written`` (number of the term that wrote the last group),
        ``cluster``, ``archive``: the cursor of an archive that is not complete, see
        `ganeti.store.backend.ArchivePage`, ``serial`` and ``last_job``,
        ``replaced_revision``, ``replaced_serial`` and ``replaced_last_job`` (those of
        histories that were replaced here), see `ganeti.store.numbers`, and ``features``
        that this release knows, joined by commas, see `ganeti.store.features`. All but
        the last are zeros and empty for an empty copy. A damaged file counts as empty,
        so that the master sends a new one.
        """
        with self._lock:
            if not os.path.exists(self.path):
                return dict(_EMPTY)
            try:
                return _state(self._open())
            except errors.ConfigurationError:
                return dict(_EMPTY)

    def changes(self, revision: int, digest: str) -> str | None:
        """Return the change-sets after a point of the history, None if not kept.

        Raises:
            ConfigurationError: there is no copy, or it is damaged.
            StorageError: the disk failed.
        """
        with self._reading() as db:
            groups = db.changes_since(revision, bytes.fromhex(digest))
        return None if groups is None else wire.encode_batch(groups)

    def dump(self) -> str:
        """Return a whole copy for `install`. Raises as `changes` does."""
        with self._reading() as db:
            return wire.encode_copy(db.dump())

    def scan(self, table: str, after: str | None) -> str:
        """Return some rows of a table, which begin after a key, as a batch.

        None are left when the batch is empty. Raises as `changes` does.
        """
        with self._reading() as db:
            rows = db.tables.scan_some(table, after, "")
        return wire.encode_batch((), [(table, *row) for row in rows[:SCAN_ROWS]])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Database]:
        """Open the file for reading alone: the master's own is read this way, too."""
        db = Database(self.path, create=False)
        try:
            yield db
        finally:
            db.close()

    def leave(self) -> None:
        """Remove the copy of a node that leaves the cluster; refuse a new one."""
        with self._lock:
            self._has_left = True
        self.purge()

    def purge(self, newest_term: int = 0) -> None:
        """Remove the copy, and lost histories, from a node that is no candidate now.

        Summaries of lost changes remain, without their values.

        Args:
            newest_term: number of the newest term that this node knows.
        """
        with self._lock:
            self._summarize(newest_term)
            self._close()
            for path in (self.path, self._damaged):
                schema.remove_file(path)

    def _summarize(self, newest_term: int) -> None:
        """List what only the files to be removed may have; failures are logged."""
        try:
            if os.path.exists(self.path):
                db = self._open()
                newest = max(newest_term, db.position().term.number)
                branches.note_uncompared(db, newest)
        except errors.GenericError as err:
            _log.warning("the changes of the removed copy are not listed: %s", err)
        branches.condense_all(self.path)

    def close(self) -> None:
        """Close the file; it is complete then, without its companions."""
        with self._lock:
            if self._db is not None and not self._db.file.is_gone():
                self._db.file.checkpoint()
            self._close()

    def _with_sound(self, use: Callable[[Database], dict[str, Any]]) -> dict[str, Any]:
        """Use the file; one that turns out to be damaged is set aside for a new one.

        The new one is empty, so it does not count until the master has sent a copy.
        """
        if self._has_left:
            raise errors.StorageError(f"{self.path}: this node has left the cluster")
        try:
            return use(self._open())
        except errors.ConfigurationError as err:
            _log.error("the copy of the store is replaced: %s", err)
            # The promise outlives the file: a damaged candidate must not accept a
            # deposed master.
            promised = self._promised()
            self._set_aside()
        db = self._open()
        if promised is not None:
            db.promise(promised)
        return use(db)

    def _open(self) -> Database:
        if self._db is not None and self._db.file.is_gone():
            self._close()
        if self._db is None:
            self._db = Database(self.path, create=True, check=True)
        return self._db

    def _promised(self) -> Term | None:
        """Return the term that a damaged file has promised, if it can be read."""
        try:
            self._close()
            with self._reading() as db:
                return db.position().term
        except errors.GenericError:
            return None

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @property
    def _damaged(self) -> str:
        return f"{self.path}.damaged"

    def _set_aside(self) -> None:
        self._close()
        schema.set_aside(self.path, self._damaged)


_EMPTY: Final = {
    "revision": 0,
    "term": 0,
    "owner": "",
    "digest": NO_HISTORY.hex(),
    "written": 0,
    "cluster": "",
    "archive": "",
    **numbers.to_status(numbers.Numbers(), numbers.Numbers()),
    features.STATUS_KEY: features.to_status(),
}


def _state(db: Database) -> dict[str, Any]:
    try:
        current = numbers.of(db.tables.read, db.position().revision)
    except ValueError as err:
        raise errors.ConfigurationError(f"{db.file.path}: {err}") from err
    return {**_describe(db), **numbers.to_status(current, db.replaced())}


def _promise(db: Database, term: Term) -> dict[str, Any]:
    if not is_credible(db.position().term, term):
        raise errors.StorageError(f"term {term} is far above {db.position().term}")
    db.promise(term)
    return _state(db)


def _install(db: Database, term: Term, copy: wire.Copy) -> dict[str, Any]:
    position = db.promise(term)
    if position.written == term.number and copy.revision < position.revision:
        # A call that was given up, and begins only now.
        raise errors.StorageError(
            f"wanted a copy of revision {position.revision} or later, found"
            f" {copy.revision}"
        )
    # An equal digest means an equal history: nothing can be lost.
    if position.revision and position.digest != copy.digest:
        kept = branches.keep(db, copy)
        if position.digest not in copy.history:
            _log.warning(
                "the copy of the store has changes that the master has not; it is"
                " kept as %s, and 'gnt-cluster lost-changes' lists them",
                kept,
            )
    db.replace(copy, term)
    return _describe(db)


def _describe(db: Database) -> dict[str, Any]:
    position = db.position()
    return {
        "revision": position.revision,
        "term": position.term.number,
        "owner": position.term.owner,
        "digest": position.digest.hex(),
        "written": position.written,
        "cluster": db.tables.cluster(),
        "archive": db.archive_cursor(),
        features.STATUS_KEY: features.to_status(),
    }
