"""The engine of a writable store: staging, group commit, followers.

Writers stage under one short lock. One committer thread takes all that has been
staged, gives it to the backend as one transaction and to the candidates as one
change-set, and acknowledges when both have answered; what arrives before that forms
the next group. Where bytes end up is the backend's business, what candidates
answer that of `ganeti.store.copies.peers`.

When a group cannot be made durable, it and everything staged since fail together,
because what was staged later may have been decided on the lost state. A group that
candidates may have does not fail: see `Engine._write_here`.
"""

import collections
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ganeti.base import errors
from ganeti.decisions.quorum import Term, Voters
from ganeti.model.objects import Network, Snapshot, Update
from ganeti.store import features, pools, wire
from ganeti.store.backend import (
    ARCHIVE_TABLE,
    Backend,
    Group,
    OutcomeUnknownError,
    Row,
    chain,
)
from ganeti.store.base import Change, ChangeSet, CopyState, Document, Done
from ganeti.store.copies import voters as voters_module
from ganeti.store.copies.doubts import Doubts, NoDoubts
from ganeti.store.features import Features

_log = logging.getLogger(__name__)

#: Rough size of a record.
RECORD_BYTES: Final = 1024
#: Bytes of change-sets kept in memory for followers; older ones come from the change
#: log.
RECENT_BYTES: Final = 4 * 1024 * 1024
#: Seconds between two attempts to write to a disk that failed.
RETRY_S: Final = 1.0
_FOREVER: Final = float("inf")
_REFUSED: Final = "changes are refused until {} can be written: {}"


class Copies(Protocol):
    """The copies on master candidates, as the engine sees them."""

    def start(
        self,
        snapshot: Snapshot,
        term: Term,
        voters: Voters,
        on_deposed: Callable[[errors.TermError], None],
    ) -> None:
        """Begin to bring candidates up to the present state.

        ``on_deposed`` is called, from any thread, when too many candidates follow
        another master.
        """

    def send(self, group: Group) -> None:
        """Send a group to the candidates that are up to date; returns at once.

        Raises:
            TermError: this master is deposed.
        """

    def all_know(self, feature: str) -> bool:
        """Return whether the releases of all candidates know a feature."""

    def use(self, used: frozenset[str]) -> None:
        """Take notice of the features in use; who lacks one gets nothing."""

    def disown(self) -> bool:
        """Take back the group that was sent last: it did not become durable here.

        Returns:
            False if a candidate may have it.
        """

    def pause(self, seconds: float) -> None:
        """Wait before something is tried again."""

    def begin_close(self) -> None:
        """Stop waiting for a majority that is missing."""

    def wait(self, group: Group) -> None:
        """Block until a group may be acknowledged.

        Raises:
            TermError: this master is deposed.
        """

    @property
    def refuses(self) -> bool:
        """Return whether changes are refused, for want of a majority."""

    def refresh(self, snapshot: Snapshot, voters: Voters) -> None:
        """Take notice of nodes that became candidates or ceased to be."""

    def await_dropped(self, node: str, seconds: float) -> bool:
        """Wait for calls to a node that is no candidate now; return if all ended."""

    def status(self) -> dict[str, CopyState]:
        """Return the state of each candidate's copy by node uuid."""

    def exposure(self) -> str:
        """Return a warning about changes that too few copies hold; empty if none."""

    def check_now(self) -> None:
        """Find out soon whether this master is deposed."""

    def close(self) -> None:
        """Stop sending."""


class _Request:
    """One commit on its way."""

    __slots__ = ("_lock", "changes", "done", "error", "size", "staged")

    def __init__(self, changes: Sequence[Change], done: Done | None) -> None:
        self.changes = changes
        self.done = done
        self.size = sum(
            RECORD_BYTES if isinstance(change, Update) else len(change[2] or b"")
            for change in changes
        )
        self.staged = Snapshot()
        self.error: BaseException | None = None
        self._lock: threading.Lock | None = None

    def make_waitable(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()  # released by `finish`

    def wait(self) -> int:
        if self._lock is not None:
            self._lock.acquire()  # never released: a request is waited for once
        if self.error is not None:
            raise type(self.error)(*self.error.args) from self.error
        return self.staged.revision

    def finish(self, error: BaseException | None) -> None:
        self.error = error
        if self._lock is not None:
            self._lock.release()
        if self.done is None:
            return
        try:
            self.done(self.staged.revision, error)
        except Exception:  # noqa: BLE001 - the committer must survive
            _log.exception("callback of commit %d failed", self.staged.revision)


class _Recent(NamedTuple):
    """A change-set for followers: what it builds on, and its size in bytes."""

    base: int
    size: int
    change_set: ChangeSet


def _pool_size(change: Change) -> int:
    """Return the bytes of an address pool, of which the payload may have a part."""
    record = change[2]
    if not isinstance(record, Network):
        return 0
    return len(record.reservations or "") + len(record.ext_reservations or "")


class _Batch:
    """See `ganeti.store.base.Batch`."""

    __slots__ = ("_snapshot", "changes")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.changes: list[Change] = []

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def put(self, *changes: Change) -> None:
        records = [change for change in changes if isinstance(change, Update)]
        if records:
            self._snapshot = self._snapshot.apply(records)
        self.changes.extend(changes)


class Engine:
    """A `ganeti.store.Store` over a backend."""

    def __init__(
        self,
        backend: Backend,
        *,
        choose: Callable[[Term], Term],
        copies: Copies | None = None,
        on_deposed: Callable[[], None] | None = None,
        skipped: int = 0,
        doubts: Doubts | None = None,
    ) -> None:
        """Open the backend with a new term and start the committer thread.

        Args:
            backend: where commits end up.
            choose: returns the new term, of the one that the backend has promised.
            copies: on master candidates.
            on_deposed: called once, from any thread, when another master took over.
            skipped: revisions to leave out, since lost groups may have had them.
            doubts: has the candidates confirm the term after a node's refusal.
        """
        self._backend = backend
        self._doubts = doubts or NoDoubts()
        self._on_deposed = on_deposed
        self._copies = copies
        state = backend.open(choose)
        self._durable, self._digest, self._term, self._voters, self._used = state
        #: The newest snapshot, durable or being made so.
        self._latest = self._durable
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        # Guarded by _lock:
        self._staged = self._durable
        # One revision more if a group that settles the candidate set may be needed.
        self._first = self._durable.revision + skipped + bool(self._voters.before)
        self._revision = self._first
        #: The next group gets a higher revision, see `leave_out`.
        self._floor = 0
        self._queue: list[_Request] = []
        self._is_idle = False
        #: Idle, but for changes that can wait.
        self._is_lingering = False
        #: Seconds that all changes in the queue can wait.
        self._wait_s = _FOREVER
        self._is_closing = False
        self._deposed: errors.TermError | None = None
        #: Why the last group could not be written here, until a write succeeds.
        self._disk_failure = ""
        self._has_acknowledged = False
        # Followers:
        self._news = threading.Condition()
        self._recent: collections.deque[_Recent] = collections.deque()
        self._recent_bytes = 0
        self._is_closed = False
        if copies is not None:
            copies.use(self._used)
            copies.start(self._durable, self._term, self._voters, self.depose)
        self._thread = threading.Thread(
            target=self._run, name="store-committer", daemon=True
        )
        self._thread.start()

    # Reading
    @property
    def term(self) -> Term:
        """The master term that this store was opened with."""
        return self._term

    @property
    def voters(self) -> Voters:
        """The candidate set in force."""
        return self._voters

    def latest(self) -> Snapshot:
        """Return the newest snapshot, durable or being made so.

        It knows the addresses of nodes that become candidates by the commit under way,
        which waits for them.
        """
        return self._latest

    def snapshot(self) -> Snapshot:
        """Return the newest durable snapshot; never blocks."""
        return self._durable

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""
        if table == ARCHIVE_TABLE:
            return self._backend.archive.read(key)
        return self._backend.read(table, key)

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table in the order of their keys."""
        if table == ARCHIVE_TABLE:
            return self._backend.archive.scan(prefix)
        return self._backend.scan(table, prefix)

    def may_use(self, feature: str) -> bool:
        """Return whether a feature of the stored form may be used."""
        return (
            feature in self._used
            or self._copies is None
            or self._copies.all_know(feature)
        )

    def copies(self) -> dict[str, CopyState]:
        """Return the state of the other candidates' copies by node uuid."""
        return {} if self._copies is None else self._copies.status()

    def release_copy(self, node: str, seconds: float) -> bool:
        """Make the end of a node's candidacy, which is committed, take full effect.

        Until another group follows, the node counts for majorities, and gets groups.
        """
        if node in self._voters.everyone:
            self.commit([Document("meta", "term", str(self._term).encode())])
        return self._copies is None or self._copies.await_dropped(node, seconds)

    def exposure(self) -> str:
        """Return why changes are refused or may be lost; empty if they are not."""
        if self._disk_failure:
            return self._refusal
        return "" if self._copies is None else self._copies.exposure()

    @property
    def _refusal(self) -> str:
        return _REFUSED.format(self._backend.place, self._disk_failure)

    def stall(self) -> str:
        """Return why the commit under way waits without limit; empty if none does."""
        is_waiting = self._copies is not None and self._copies.refuses
        return self.exposure() if is_waiting or self._disk_failure else ""

    def check_term(self) -> None:
        """Find out soon whether another master took over; returns at once.

        For reports that anybody may make: a node's refusal ends no master.
        """
        if self._copies is not None:
            self._copies.check_now()
        if self.is_over():
            self.depose(errors.TermError(f"term {self._term} is over"))

    def require_leading(self) -> None:
        """Raise TermError if another master has taken over, or may have."""
        if self._deposed is not None:
            raise errors.TermError(*self._deposed.args)

    def note_refusal(self) -> None:
        """Take notice that a node has refused this master's term; returns at once."""
        self._doubts.note()

    def require_confirmed(self, give_up: threading.Event | None = None) -> None:
        """Block until a majority has confirmed the term since a node refused it."""
        self.require_leading()
        self._doubts.settle(self, give_up)
        self.require_leading()

    def is_over(self) -> bool:
        """Return whether this node's own copy has promised another term."""
        return self._backend.promised() != self._term

    def follow(self, from_revision: int) -> Iterator[ChangeSet]:
        """Yield durable change-sets after a revision until the store is closed."""
        seen = from_revision
        while True:
            with self._news:
                while not (self._is_closed or self._durable.revision > seen):
                    self._news.wait()
                if self._durable.revision <= seen:
                    return
                news = self._recent_since(seen)
            for change_set in self._logged_since(seen) if news is None else news:
                seen = change_set.revision
                yield change_set

    def _recent_since(self, revision: int) -> list[ChangeSet] | None:
        if not self._recent or self._recent[0].base > revision:
            return None
        # From the newest on: followers ask after each commit, and thousands are kept.
        change_sets = []
        for item in reversed(self._recent):
            if item.change_set.revision <= revision:
                break
            change_sets.append(item.change_set)
        return change_sets[::-1]

    def _logged_since(self, revision: int) -> list[ChangeSet]:
        groups = self._backend.changes_since(revision, None)
        if groups is None:
            raise errors.StorageError(
                f"store: changes after revision {revision} are no longer kept;"
                f" start from a snapshot"
            )
        return [
            ChangeSet(group.revision, group.term, wire.to_changes(wire.rows_of(group)))
            for group in groups
        ]

    # Writing
    @contextlib.contextmanager
    def writing(self) -> Iterator[_Batch]:
        """Change records: read, decide and commit as one step."""
        with self._lock:
            self._check_open_locked()
            batch = _Batch(self._staged)
            yield batch
            if not batch.changes:
                return
            request = _Request(batch.changes, None)
            request.make_waitable()
            self._stage_locked(request, batch.snapshot)
        request.wait()

    def commit(self, changes: Sequence[Change]) -> int:
        """Make changes durable and return their revision; blocks."""
        request = _Request(changes, None)
        request.make_waitable()
        self._submit(request)
        return request.wait()

    def commit_soon(
        self,
        changes: Sequence[Change],
        done: Done | None = None,
        *,
        wait_s: float = 0.0,
    ) -> None:
        """Ask for a commit and return at once."""
        self._submit(_Request(changes, done), wait_s=wait_s)

    def leave_out(self, revision: int) -> None:
        """Give each later change a higher revision than this one."""
        with self._lock:
            self._floor = max(self._floor, revision)

    def _submit(self, request: _Request, *, wait_s: float = 0.0) -> None:
        records = [item for item in request.changes if isinstance(item, Update)]
        with self._lock:
            self._check_open_locked()
            staged = self._staged.apply(records) if records else self._staged
            self._stage_locked(request, staged, wait_s=wait_s)

    def _check_open_locked(self) -> None:
        if self._deposed is not None:
            raise errors.TermError(*self._deposed.args)
        if self._is_closing:
            raise errors.StorageError("store: closed, nothing can be written")
        if self._copies is not None and self._copies.refuses:
            raise errors.StorageError(f"store: {self._copies.exposure()}")
        if self._disk_failure:
            raise errors.StorageError(f"store: {self._refusal}")

    def _stage_locked(
        self, request: _Request, staged: Snapshot, *, wait_s: float = 0.0
    ) -> None:
        self._check_size(request)
        if request.changes:
            self._revision = max(self._revision, self._floor) + 1
        self._staged = request.staged = staged.at(self._revision, staged.term)
        self._queue.append(request)
        is_sooner, self._wait_s = wait_s < self._wait_s, min(wait_s, self._wait_s)
        if self._is_idle and (is_sooner or not self._is_lingering):
            # While it lingers, another change may have to wake it again.
            self._is_idle = self._is_lingering and wait_s > 0
            self._work.notify()

    def _check_size(self, request: _Request) -> None:
        limits = self._backend.limits
        if request.size > limits.commit:
            raise errors.StorageError(
                f"store: a change of {request.size} bytes, at most {limits.commit} are"
                " possible; nothing was changed"
            )
        for change in request.changes:
            if isinstance(change, Document) and len(change.data or b"") > limits.value:
                raise errors.StorageError(
                    f"store: {change.table} {change.key} has {len(change.data or b'')}"
                    f" bytes, at most {limits.value} are possible; nothing was changed"
                )

    # The committer thread
    def _run(self) -> None:
        while requests := self._take():
            staged = requests[-1].staged
            try:
                self._commit(requests, staged)
            except errors.TermError as err:
                self.depose(err)
                self._fail(requests, err)
            except errors.GenericError as err:
                _log.error("commit of revision %d failed: %s", staged.revision, err)
                self._fail(requests, err)
            except Exception as err:  # noqa: BLE001 - the same
                _log.exception("commit of revision %d failed", staged.revision)
                self._fail(requests, errors.CommitUnknownError(f"store: {err!r}"))

    def _take(self) -> list[_Request]:
        """Return the next group, none when the store is closed."""
        self._probe()
        with self._lock:
            while not self._queue:
                if self._is_closing:
                    return []
                self._is_idle = True
                self._work.wait()
            self._linger_locked()
            queue = self._queue
            count, size = 1, queue[0].size
            limit = 1 if self._is_unsettled else len(queue)
            while (
                count < limit and size + queue[count].size <= self._backend.limits.group
            ):
                size += queue[count].size
                count += 1
            self._queue = queue[count:]
            self._wait_s = 0.0 if self._queue else _FOREVER
            return queue[:count]

    def _linger_locked(self) -> None:
        """Let changes that can wait do so, until others take them along."""
        self._is_idle = self._is_lingering = True
        is_over = False
        while self._wait_s > 0 and not (is_over or self.is_ending):
            # Woken by a change that can wait less long, or not at all.
            is_over = not self._work.wait(self._wait_s)
        self._is_idle = self._is_lingering = False

    def _probe(self) -> None:
        """Wait until the disk can be written again, if a group could not be."""
        while self._disk_failure:
            with self._lock:
                self._work.wait_for(lambda: self._is_closing, RETRY_S)
                if self._is_closing:
                    return
            try:
                self._backend.probe()
            except errors.GenericError as err:
                self._disk_failure = str(err)
            else:
                self._disk_failure = ""
                _log.warning("%s can be written again", self._backend.place)

    def _commit(self, requests: list[_Request], staged: Snapshot) -> None:
        changes = [change for request in requests for change in request.changes]
        if changes:
            self._settle(staged)
            self._write(changes, staged)
        for request in requests:
            request.finish(None)

    @property
    def _is_unsettled(self) -> bool:
        """Return whether an earlier master's change of the candidate set is open.

        No majority may know it yet, so the set must not change again before a group of
        this master was acknowledged (`ganeti.decisions.quorum`, rule 6).
        """
        return bool(self._voters.before) and not self._has_acknowledged

    def _settle(self, staged: Snapshot) -> None:
        """Write a group that changes nothing, if the first group would change the set.

        Otherwise the first group settles the change. It must not be preceded by another
        one: with accepted loss it has the numbers that are left out, and whoever takes
        over from this master must not have a group of this term without them.
        """
        if self._is_unsettled and staged.nodes is not self._durable.nodes:
            document = Document("meta", "term", str(self._term).encode())
            self._write([document], self._durable.at(self._first, self._durable.term))

    def _write(self, changes: list[Change], staged: Snapshot) -> None:
        before, voters = self._voters, self._next_voters(staged)
        if voters != before:
            changes.append(voters_module.encode(voters))
        rows, used = self._stored_form(changes)
        payload = wire.encode_rows(rows)
        group = Group(
            self._durable.revision,
            staged.revision,
            staged.term,
            self._digest,
            chain(self._digest, payload),
            payload,
            rows,
        )
        self._latest = staged
        if self._copies is not None:
            if used != self._used:
                self._copies.use(used)
            if voters != before:
                self._copies.refresh(staged, voters)
            self._copies.send(group)
        try:
            self._write_here(group)
        except BaseException:
            self._latest = self._durable
            if self._copies is not None:
                self._copies.use(self._used)
                self._copies.refresh(self._durable, before)
            raise
        self._used = used
        self._digest, self._voters = group.digest, voters
        if self._copies is not None:
            self._copies.wait(group)
        self._has_acknowledged = True
        self._publish(group, changes, staged)

    def _stored_form(self, changes: list[Change]) -> tuple[list[Row], Features]:
        """Return the rows of a group, and the features that are in use with it.

        A feature is used as soon as all candidates know it.
        """
        wanted = {
            feature
            for feature in features.KNOWN - self._used
            if self._copies is None or self._copies.all_know(feature)
        }
        before = wire.Stored(self._durable, self._used)
        rows = wire.rows(changes, self._used | wanted, before)
        begun = set()
        if features.POOL_ROWS in wanted and any(map(pools.is_in_rows, rows)):
            begun.add(features.POOL_ROWS)
            # From here on all large networks have this form.
            rows = wire.rows(
                [*self._large_networks(), *changes], self._used | wanted, before
            )
        if features.COMPRESSED_NETWORKS in wanted and any(
            map(wire.is_compressed, rows)
        ):
            begun.add(features.COMPRESSED_NETWORKS)
        # Asked for by the writer, with `may_use`.
        if features.ARCHIVED_LOGS not in self._used and any(
            map(wire.is_archived_log, rows)
        ):
            begun.add(features.ARCHIVED_LOGS)
        used = self._used | begun
        if used == self._used:
            return rows, self._used
        document = features.encode(used)
        changes.append(document)
        return [*rows, document], used

    def _large_networks(self) -> list[Update]:
        networks = self._durable.networks.items()
        return [
            Update(pools.TABLE, *item) for item in networks if pools.is_large(item[1])
        ]

    def _is_durable(self, group: Group) -> bool:
        """Return whether a group of an unknown outcome is durable.

        Raises:
            StorageError: it is still unknown.
            TermError: another master has written.
        """
        end = self._backend.end()
        if end == (group.revision, group.digest):
            return True
        if end != (group.base, group.parent):
            raise errors.TermError(
                f"term {group.term} is over: found revision {end[0]}"
            )
        return False

    def _write_out(self, group: Group) -> None:
        """Write a group; return only when its outcome is known.

        While it is unknown, this reads again, whoever waits: an answer to the caller
        would be a guess. Closing the store ends that with an error.
        """
        try:
            self._backend.write(group)
        except OutcomeUnknownError as err:
            _log.error("revision %d: the outcome is unknown: %s", group.revision, err)
            self._find_out(group, str(err))

    def _find_out(self, group: Group, reason: str) -> None:
        """Read until the outcome of a write is known.

        Raises:
            StorageError: it was not written.
            CommitUnknownError: closed before that, or this master is deposed.
            TermError: another master has written.
        """
        while True:
            try:
                if self._is_durable(group):
                    return
            except errors.StorageError as err:
                reason = str(err)
            else:
                raise errors.StorageError(f"store: not written: {reason}")
            self._disk_failure = reason
            with self._lock:
                self._work.wait_for(lambda: self.is_ending, RETRY_S)
                if self.is_ending:
                    why = "closed" if self._deposed is None else str(self._deposed)
                    raise errors.CommitUnknownError(
                        f"store: {why}; revision {group.revision} may be durable or"
                        f" not: {reason}"
                    )

    @property
    def is_ending(self) -> bool:
        """Whether the store is being closed, or this master is deposed."""
        return self._is_closing or self._deposed is not None

    def _write_here(self, group: Group) -> None:
        """Write a group to this node's disk.

        From a failure on, changes are refused until the disk works: see `_probe`. But
        if a candidate may have the group already, nothing else may be written in its
        place: this tries again until the disk works, the store is closed, or another
        master has taken over.
        """
        while True:
            try:
                self._write_out(group)
            except errors.TermError:
                raise
            except Exception as err:
                if not self._disk_failure:
                    _log.error("revision %d cannot be written: %s", group.revision, err)
                self._disk_failure = str(err)
                if self._copies is None or self._copies.disown():
                    raise
                self._copies.pause(RETRY_S)
                if self._is_closing:
                    raise errors.CommitUnknownError(
                        f"store: closed; candidates may have revision"
                        f" {group.revision}, which this node could not write: {err}"
                    ) from err
            else:
                self._disk_failure = ""
                return

    def _next_voters(self, staged: Snapshot) -> Voters:
        """Return the candidate set in force with the group that is to be written.

        The group before was acknowledged, so a change of the set is settled.
        """
        if self._is_unsettled:
            return self._voters
        if staged.nodes is self._durable.nodes:
            return self._voters.settled() if self._voters.before else self._voters
        wanted = voters_module.candidates_of(staged)
        if wanted == self._voters.now:
            return self._voters.settled()
        return self._voters.changed(wanted)

    def _publish(self, group: Group, changes: list[Change], staged: Snapshot) -> None:
        with self._news:
            self._durable = staged
            change_set = ChangeSet(group.revision, group.term, changes)
            size = len(group.payload) + sum(map(_pool_size, changes))
            self._remember(_Recent(group.base, size, change_set))
            self._news.notify_all()

    def _remember(self, item: "_Recent") -> None:
        self._recent.append(item)
        self._recent_bytes += item.size
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft().size

    def depose(self, error: errors.TermError) -> None:
        """Refuse all changes from now on: another master has taken over, or may."""
        with self._lock:
            if self._deposed is not None:
                return
            self._deposed = error
            self._work.notify_all()
        _log.critical("this master is deposed: %s", error)
        if self._on_deposed is not None:
            self._on_deposed()

    def _fail(self, requests: list[_Request], error: errors.GenericError) -> None:
        with self._lock:
            requests += self._queue
            self._queue = []
            self._staged = self._durable
            self._revision = max(self._first, self._durable.revision)
        for request in requests:
            request.finish(error)

    def close(self) -> None:
        """Finish what was asked for and close the files."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            self._work.notify()
        if self._copies is not None:
            self._copies.begin_close()
        self._thread.join()
        if self._copies is not None:
            self._copies.close()
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        self._backend.close()
