"""A store in etcd and one in a file: the file that follows, and moves between them.

The file has the form of the other backend, so `ganeti.store.copies.follower` reads it.
A watch reports that the history has a new end; then the mirror reads the groups that
the file lacks, or a whole copy if they are not kept.

`to_etcd` and `to_file` move a store while no master runs. Each move can be repeated
after it ended early, and ends with one transaction. Until that, or after that, the key
``moving`` keeps every master out of etcd; on the side of the file a new term keeps out
a master that was started before.
"""

import logging
import threading
from collections.abc import Iterator
from typing import Final

import msgspec

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.decisions.quorum import Term, next_number
from ganeti.model.objects import TABLES
from ganeti.store.backend import ArchivePage, OutcomeUnknownError, Row
from ganeti.store.base import DOCUMENT_TABLES
from ganeti.store.database import Database, Position
from ganeti.store.etcd import layout, messages
from ganeti.store.etcd.address import Servers
from ganeti.store.etcd.backend import EtcdBackend
from ganeti.store.etcd.gateway import CompactedError, Gateway
from ganeti.store.etcd.layout import Mark, Move
from ganeti.store.etcd.reader import Guards, Reader, by_transaction
from ganeti.store.tables import SCAN_ROWS

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
                            f"{self._db.file.path}: another process writes to it"
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
        self._db.file.checkpoint()
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
            cluster = self._db.tables.cluster()
            if cluster and copy.cluster() and cluster != copy.cluster():
                raise errors.ConfigurationError(
                    f"{self._gateway.servers}: wanted cluster {cluster}, as in"
                    f" {self._db.file.path}, found cluster {copy.cluster()}"
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
                    f"{self._db.file.path}: another process writes to it"
                )


_TABLES: Final = (*TABLES, *DOCUMENT_TABLES)


def to_etcd(path: str, servers: Servers, node: str) -> Position:
    """Copy the store in a file to etcd, where a master can begin afterwards.

    A master that has the file open can write nothing to it any more. If this is
    repeated, it starts from the beginning, or finds that all is there.

    Args:
        path: of the file.
        servers: of the store in etcd, which must be empty, or have been moved out.
        node: uuid of this node.

    Returns:
        Where the store stands. Its term is that of the move.

    Raises:
        ConfigurationError: the file is missing or damaged; or etcd has another store.
        StorageError: the disk failed, no server answers, or a row is too large.
        TermError: somebody else writes to one of them.
    """
    gateway = Gateway(servers)
    try:
        db = Database(path, create=False, check=True)
        try:
            return _Entry(db, gateway, node).run()
        except OutcomeUnknownError as err:
            raise errors.StorageError(f"{err}; this can be repeated") from err
        finally:
            db.close()
    finally:
        gateway.close()


class _Entry:
    """One move of a file to etcd."""

    def __init__(self, db: Database, gateway: Gateway, node: str) -> None:
        self._db = db
        self._gateway = gateway
        self._reader = Reader(gateway)
        self._keys = self._reader.keys
        self._node = node
        self._at = 0

    def run(self) -> Position:
        """Move everything; return where the store stands."""
        seen = self._reader.look()
        moving = self._check(seen)
        if moving is None and seen.end_at:
            # An earlier attempt has ended with its last transaction.
            return self._db.position()
        for row in self._rows():
            # A row that is too large is an error before anything is changed.
            layout.operation(self._keys, row)
        promised = self._db.position().term.number
        term = Term(next_number(promised, [seen.promised.number]), self._node)
        position = self._db.promise(term, is_own=True)
        self._begin(seen, position)
        operations = (layout.operation(self._keys, row) for row in self._rows())
        for batch in layout.batches(operations):
            self._carry_out(batch)
        if self._db.position() != position:
            raise errors.TermError(
                f"{self._db.file.path}: another process writes to it"
            )
        self._finish(position)
        return position

    def _check(self, seen: Guards) -> Move | None:
        """Return what is known of a move; refuse to replace another store."""
        moving, cluster = self._reader.moving(), self._db.tables.cluster()
        if not cluster:
            raise errors.ConfigurationError(
                f"{self._db.file.path}: no cluster is in it"
            )
        if moving is not None:
            self._at = moving.at
            if moving.move.cluster != cluster:
                raise errors.ConfigurationError(
                    f"{self._gateway.servers}: wanted no store or that of cluster"
                    f" {cluster}, found a move of cluster {moving.move.cluster}"
                )
            return moving.move
        position = self._db.position()
        is_done = seen.mark.end == (position.revision, position.digest)
        if seen.end_at and not is_done:
            raise errors.ConfigurationError(
                f"{self._gateway.servers}: wanted no store, found revision"
                f" {seen.mark.revision} of term {seen.promised}"
            )
        return None

    def _begin(self, seen: Guards, position: Position) -> None:
        """Keep masters out, and remove what an earlier move has left."""
        move = Move(
            self._db.tables.cluster(),
            position.revision,
            position.digest.hex(),
            is_out=False,
        )
        keys = self._keys
        # The leader's key is not there: a master cannot begin before the move, as the
        # condition on the end would fail, nor during it.
        body = messages.transaction(
            [*seen.conditions(keys), messages.is_at(keys.moving, self._at)],
            [
                messages.put(keys.moving, msgspec.json.encode(move)),
                messages.delete(keys.end),
                messages.delete(keys.rows, messages.after(keys.rows)),
                messages.delete(keys.staged, messages.after(keys.staged)),
            ],
        )
        self._at = self._transact(body)

    def _carry_out(self, operations: list[messages.Json]) -> None:
        condition = messages.is_at(self._keys.moving, self._at)
        self._transact(messages.transaction([condition], operations))

    def _finish(self, position: Position) -> None:
        keys, digest = self._keys, position.digest.hex()
        mark = Mark(
            position.revision, position.revision, position.written, digest, digest
        )
        body = messages.transaction(
            [messages.is_at(keys.moving, self._at), messages.is_at(keys.end, 0)],
            [
                messages.put(keys.end, layout.encode_mark(mark)),
                messages.put(keys.term, str(position.term).encode()),
                messages.delete(keys.moving),
            ],
        )
        self._transact(body)

    def _transact(self, body: messages.Json) -> int:
        answer = self._gateway.transact(body)
        if not answer.succeeded:
            raise errors.TermError(
                f"{self._gateway.servers}: another process moves a store there, or is"
                " master there; this can be repeated"
            )
        return answer.header.revision

    def _rows(self) -> Iterator[Row]:
        for table in _TABLES:
            after: str | None = None
            while True:
                rows = self._db.tables.scan_some(table, after, "")
                for key, data in rows:
                    yield table, key, data
                if len(rows) < SCAN_ROWS:
                    break
                after = rows[-1][0]


def to_file(
    servers: Servers, path: str, node: str, clock: clock_module.Clock
) -> Position:
    """Copy the store in etcd to a file, which a master can open afterwards.

    No master can begin in etcd any more, until the store is moved there again. The
    store in etcd stays as it is. If this is repeated, it goes on where it ended.

    Args:
        servers: of the store in etcd.
        path: of the file; an older copy of the same cluster is brought up to date.
        node: uuid of this node.
        clock: measures the lease of the move.

    Returns:
        Where the file stands.

    Raises:
        ConfigurationError: there is no store in etcd, or it is damaged; or the file is
            damaged, or of another cluster.
        StorageError: the disk failed, or no server answers.
        TermError: another node is master, or the file has promised a later term.
    """
    gateway = Gateway(servers)
    mirror = Mirror(servers, path, clock)
    try:
        moving = Reader(gateway).moving()
        if moving is None or not moving.move.is_out:
            _leave(servers, mirror, node, clock)
        mirror.catch_up()
        return mirror.position()
    finally:
        mirror.close()
        gateway.close()


def _leave(
    servers: Servers, mirror: Mirror, node: str, clock: clock_module.Clock
) -> None:
    """Copy the store as its only master, and keep masters out from then on."""
    backend = EtcdBackend(servers, clock=clock)
    state = backend.open(lambda term: Term(next_number(term.number, []), node))
    try:
        mirror.catch_up()
        if not state.snapshot.revision:
            raise errors.ConfigurationError(f"{servers}: there is no store")
        backend.move_out(state.snapshot.cluster.uuid)
    finally:
        backend.close()
