"""A master candidate's copy: what the node daemon does with calls from the master.

The four methods are the node's side of the calls ``store_apply``, ``store_install``,
``store_status`` and ``store_purge``. Each is durable when it returns. All are
thread-safe.
"""

import contextlib
import os
import threading
from typing import Any, Final

from ganeti import errors
from ganeti.store import wire
from ganeti.store.backend import NO_HISTORY
from ganeti.store.database import Database, Position


class Replica:
    """The copy at a path; the file is made by the first `install` or `apply`."""

    def __init__(self, path: str) -> None:
        """Remember the path; nothing is opened yet."""
        self.path = path
        self._lock = threading.Lock()
        self._db: Database | None = None

    def apply(self, term: int, base: int, data: str | bytes) -> dict[str, Any]:
        """Take over change-sets in order, or none of them.

        Args:
            term: the sender's.
            base: revision that the first one builds on.
            data: see `ganeti.store.wire`.

        Returns:
            what `status` returns, and ``applied``: false when the copy is not at
            ``base`` or has another history, in which case nothing was changed.

        Raises:
            TermError: the copy has seen a later term.
            StorageError: the disk failed, or the data is damaged.
        """
        groups, extra = wire.decode_batch(data)
        with self._lock:
            db = self._open()
            position = self._check_term(db, term)
            is_applied = position.revision == base and db.append(
                groups, position, term=term, extra=extra
            )
            return {**_describe(db), "applied": is_applied}

    def install(self, term: int, data: str | bytes) -> dict[str, Any]:
        """Replace everything but the archive with a copy of the master's.

        A copy that is left of another cluster is replaced altogether.

        Returns:
            what `status` returns.

        Raises:
            TermError: the copy has seen a later term of the same cluster.
            StorageError: the disk failed, or the data is damaged.
        """
        copy = wire.decode_copy(data)
        with self._lock:
            try:
                db = self._open()
            except errors.ConfigurationError:
                self._set_aside()
                db = self._open()
            is_same = db.cluster() in ("", copy.cluster())
            if is_same:
                self._check_term(db, term)
            taken = wire.Copy(copy.revision, term, copy.digest, copy.rows)
            db.replace(taken, is_same_cluster=is_same)
            return _describe(db)

    def status(self) -> dict[str, Any]:
        """Return ``revision``, ``term``, ``digest`` (hexadecimal) and ``cluster``.

        They are zeros and an empty uuid for an empty copy. A damaged file counts as
        empty, so that the master sends a new one.
        """
        with self._lock:
            if not os.path.exists(self.path):
                return dict(_EMPTY)
            try:
                return _describe(self._open())
            except errors.ConfigurationError:
                return dict(_EMPTY)

    def purge(self) -> None:
        """Remove the copy from a node that is no candidate any more."""
        with self._lock:
            self._close()
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path + suffix)

    def close(self) -> None:
        """Close the file; it is complete then, without its companions."""
        with self._lock:
            if self._db is not None and not self._db.is_gone():
                self._db.checkpoint()
            self._close()

    def _open(self) -> Database:
        if self._db is not None and self._db.is_gone():
            self._close()
        if self._db is None:
            self._db = Database(self.path, create=True)
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _set_aside(self) -> None:
        self._close()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.path + suffix, f"{self.path}.damaged{suffix}")

    def _check_term(self, db: Database, term: int) -> Position:
        position = db.position()
        if term < position.term:
            raise errors.TermError(
                f"term {term} is over: this node has seen term {position.term}"
            )
        return position


_EMPTY: Final = {
    "revision": 0,
    "term": 0,
    "digest": NO_HISTORY.hex(),
    "cluster": "",
}


def _describe(db: Database) -> dict[str, Any]:
    position = db.position()
    return {
        "revision": position.revision,
        "term": position.term,
        "digest": position.digest.hex(),
        "cluster": db.cluster(),
    }
