"""A file that follows a store in etcd, for all that read the file of their node.

The file has the form of the other backend, so `ganeti.store.copies.follower` reads it.
A watch reports that the history has a new end; then the mirror reads the groups that
the file lacks, or a whole copy if they are not kept.
"""

import logging
import threading
from typing import Final

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.store.backend import ArchivePage, Row
from ganeti.store.etcd import messages
from ganeti.store.etcd.address import Servers
from ganeti.store.etcd.gateway import CompactedError, Gateway
from ganeti.store.etcd.reader import Guards, Reader, by_transaction
from ganeti.store.file.database import Database, Position

_log = logging.getLogger(__name__)

#: Seconds of one watch: a server that is frozen sends nothing, and is left then.
WATCH_S: Final = 10.0
#: Seconds between attempts while no server answers.
RETRY_S: Final = 1.0
#: Bytes of the archive that are written to the file at once.
_PAGE_BYTES: Final = 1024 * 1024
#: Attempts to read a copy while the servers forget the past.
_ATTEMPTS: Final = 3


class Mirror:
    """Keeps one file equal to a store in etcd. Its methods are for one thread."""

    def __init__(self, servers: Servers, path: str, clock: clock_module.Clock) -> None:
        """Open the file, make it if it is missing.

        Raises:
            ConfigurationError: the file is damaged, or of another version.
            StorageError: the disk failed.
        """
        self._gateway = Gateway(servers)
        self._reader = Reader(self._gateway)
        self._clock = clock
        self._db = Database(path, create=True, check=True)

    def catch_up(self) -> Guards:
        """Bring the file to the present end of the history, and return that end.

        The archive is complete when this returns. If this ends early, the next call
        goes on from there.

        Raises:
            StorageError: no server answers, or the disk failed.
            ConfigurationError: the store is damaged, or of another cluster.
            TermError: the file has promised a later term.
        """
        position, now = self._db.position(), self._reader.look()
        if (position.revision, position.digest) != now.mark.end:
            groups = (
                self._reader.groups_since(position.revision, position.digest)
                if position.revision
                else None
            )
            if groups is None:
                now = self._take_copy()
            else:
                position = self._promise(now)
                for group in groups:
                    if not self._db.append([group], position, term=position.term):
                        raise errors.StorageError(
                            f"{self._db.path}: another process writes to it"
                        )
                    position = self._db.position()
        else:
            self._promise(now)
        self._take_archive()
        return now

    def position(self) -> Position:
        """Return where the file stands."""
        return self._db.position()

    def run(self, stop: threading.Event) -> None:
        """Follow the store until an event is set; failures are logged and repeated."""
        trouble = ""
        while not stop.is_set():
            try:
                now = self.catch_up()
                if trouble:
                    trouble = ""
                    _log.info("the copy of the store is current again")
                self._follow(now, stop)
            except Exception as err:  # noqa: BLE001 - a copy must not stay behind
                if str(err) != trouble:
                    trouble = str(err)
                    _log.warning(
                        "the copy of the store is not current: %s",
                        err,
                        exc_info=None if isinstance(err, errors.GenericError) else err,
                    )
                self._clock.wait(stop, RETRY_S)

    def close(self) -> None:
        """Close the file; it is complete then, without its companions."""
        self._db.checkpoint()
        self._db.close()
        self._gateway.close()

    def _follow(self, now: Guards, stop: threading.Event) -> None:
        """Write news to the file, until the watch ends or something is missing."""
        try:
            self._gateway.watch(
                self._reader.keys.root,
                now.at + 1,
                self._take_events,
                timeout_s=WATCH_S,
                is_wanted=lambda: not stop.is_set(),
            )
        except CompactedError:
            return
        except errors.StorageError as err:
            # Usually the end of the time. The next look says whether servers answer.
            _log.debug("watch: %s", err)

    def _take_events(self, events: list[messages.Event]) -> bool:
        """Write groups to the file; return false if they do not go on from its end."""
        for _at, its in by_transaction(events):
            actual = self._reader.group_in(its)
            if actual is None:
                continue
            mark, group, term = actual
            position = self._db.position()
            if term is not None and term != position.term:
                position = self._db.promise(term)
            if mark.end == (position.revision, position.digest):
                continue
            if group is None or not self._db.append(
                [group], position, term=position.term
            ):
                return False
        return True

    def _promise(self, now: Guards) -> Position:
        position = self._db.position()
        if position.term == now.promised:
            return position
        return self._db.promise(now.promised)

    def _take_copy(self) -> Guards:
        for _attempt in range(_ATTEMPTS):
            try:
                copy, now = self._reader.copy()
            except CompactedError as err:
                reason = str(err)
                continue
            cluster = self._db.cluster()
            if cluster and copy.cluster() and cluster != copy.cluster():
                raise errors.ConfigurationError(
                    f"{self._gateway.servers}: wanted cluster {cluster}, as in"
                    f" {self._db.path}, found cluster {copy.cluster()}"
                )
            self._db.replace(copy, now.promised)
            _log.info("took a whole copy of revision %d", copy.revision)
            return now
        raise errors.StorageError(f"{self._gateway.servers}: {reason}")

    def _take_archive(self) -> None:
        """Take the rows that a whole copy lacks, from where the file ends."""
        while cursor := self._db.archive_cursor():
            table, _separator, after = cursor.partition("/")
            rows, size = list[Row](), 0
            for key, data in self._reader.rows(table, after=after or None):
                rows.append((table, key, data))
                size += len(data)
                if size >= _PAGE_BYTES:
                    break
            upto = rows[-1][1] if size >= _PAGE_BYTES else None
            page = ArchivePage(table, after, upto, is_whole=True)
            position = self._db.position()
            if not self._db.append(
                [], position, term=position.term, extra=rows, page=page
            ):
                raise errors.StorageError(
                    f"{self._db.path}: another process writes to it"
                )
