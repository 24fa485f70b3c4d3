"""Staging: what writers ask for, until the committer's thread takes it.

Whether changes are taken at all is decided here, too; how they become durable is
`ganeti.store.committer`.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.model.objects import Snapshot, Update
from ganeti.store.backend import Backend, Copies
from ganeti.store.base import Batch, Change, Document, Done

_log = logging.getLogger(__name__)

#: Rough size of a record.
RECORD_BYTES: Final = 1024
_FOREVER: Final = float("inf")
_REFUSED: Final = "changes are refused until {} can be written: {}"


class Request:
    """One commit on its way: staged by a writer, ended by the committer's thread."""

    __slots__ = ("_lock", "changes", "done", "error", "size", "staged")

    def __init__(self, changes: Sequence[Change], done: Done | None) -> None:
        """Take changes, and what is called at the end."""
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
        """Let the writer call `wait`."""
        self._lock = threading.Lock()
        self._lock.acquire()  # released by `finish`

    def wait(self) -> int:
        """Block until it is durable and return the revision, or raise the error."""
        if self._lock is not None:
            self._lock.acquire()  # never released: a request is waited for once
        if self.error is not None:
            raise type(self.error)(*self.error.args) from self.error
        return self.staged.revision

    def finish(self, error: BaseException | None) -> None:
        """End it, with an error or without."""
        self.error = error
        if self._lock is not None:
            self._lock.release()
        if self.done is None:
            return
        try:
            self.done(self.staged.revision, error)
        except Exception:  # noqa: BLE001 - the committer must survive
            _log.exception("callback of commit %d failed", self.staged.revision)


class Staging:
    """The newest staged state, the queue of requests, and reasons to refuse more.

    `lock` is the writers' lock. It guards all fields; writers hold it from the reading
    of the staged state until their changes are staged on it. The committer's thread
    sleeps on `work`, which has the same lock. `disk_failure` is the exception: that
    thread alone sets it, without the lock. It, `deposed` and `is_closing` may be read
    without it.
    """

    def __init__(
        self,
        backend: Backend,
        copies: Copies | None,
        durable: Snapshot,
        first: int,
        on_deposed: Callable[[], None] | None,
    ) -> None:
        """Begin with the durable state.

        Args:
            backend: limits what is taken.
            copies: on master candidates; while they have no majority, nothing is taken.
            durable: the newest snapshot.
            first: revision after which the first one follows.
            on_deposed: called once, from any thread, when another master took over.
        """
        self._backend = backend
        self._copies = copies
        self._on_deposed = on_deposed
        self.first = first
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)
        self._staged = durable
        self._revision = first
        #: The next group gets a higher revision, see `leave_out`.
        self._floor = 0
        self._queue: list[Request] = []
        self._is_idle = False
        #: Idle, but for changes that can wait.
        self._is_lingering = False
        #: Seconds that all changes in the queue can wait.
        self._wait_s = _FOREVER
        self.is_closing = False
        self.deposed: errors.TermError | None = None
        #: Why the last group could not be written here, until a write succeeds.
        self.disk_failure = ""

    @contextlib.contextmanager
    def writing(self) -> Iterator[Batch]:
        """Change records: read, decide and commit as one step."""
        with self.lock:
            self._check_open_locked()
            batch = Batch(self._staged)
            yield batch
            if not batch.changes:
                return
            request = Request(batch.changes, None)
            request.make_waitable()
            self._stage_locked(request, batch.snapshot)
        # Without the lock: what others stage during the commit forms the next group.
        request.wait()

    def submit(self, request: Request, *, wait_s: float = 0.0) -> None:
        """Stage a request on the newest state."""
        records = [item for item in request.changes if isinstance(item, Update)]
        with self.lock:
            self._check_open_locked()
            staged = self._staged.apply(records) if records else self._staged
            self._stage_locked(request, staged, wait_s=wait_s)

    def leave_out(self, revision: int) -> None:
        """Give each later change a higher revision than this one."""
        with self.lock:
            self._floor = max(self._floor, revision)

    def _check_open_locked(self) -> None:
        if self.deposed is not None:
            raise errors.TermError(*self.deposed.args)
        if self.is_closing:
            raise errors.StorageError("store: closed, nothing can be written")
        if self._copies is not None and self._copies.refuses:
            raise errors.StorageError(f"store: {self._copies.exposure()}")
        if self.disk_failure:
            raise errors.StorageError(f"store: {self.refusal}")

    @property
    def refusal(self) -> str:
        """Return why changes are refused while the disk fails."""
        return _REFUSED.format(self._backend.place, self.disk_failure)

    def _stage_locked(
        self, request: Request, staged: Snapshot, *, wait_s: float = 0.0
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
            self.work.notify()

    def _check_size(self, request: Request) -> None:
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

    # For the committer's thread
    def take(self, *, is_single: bool) -> list[Request]:
        """Wait for the next group and return it, none when the store is closed.

        Args:
            is_single: at most one request.
        """
        with self.lock:
            while not self._queue:
                if self.is_closing:
                    return []
                self._is_idle = True
                self.work.wait()
            self._linger_locked()
            queue = self._queue
            count, size = 1, queue[0].size
            limit = 1 if is_single else len(queue)
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
            is_over = not self.work.wait(self._wait_s)
        self._is_idle = self._is_lingering = False

    def drop(self, durable: Snapshot) -> list[Request]:
        """Stage from the durable state again; return what was staged since."""
        with self.lock:
            queue, self._queue = self._queue, []
            self._staged = durable
            self._revision = max(self.first, durable.revision)
        return queue

    def depose(self, error: errors.TermError) -> None:
        """Refuse all changes from now on: another master has taken over, or may."""
        with self.lock:
            if self.deposed is not None:
                return
            self.deposed = error
            self.work.notify_all()
        _log.critical("this master is deposed: %s", error)
        if self._on_deposed is not None:
            self._on_deposed()

    @property
    def is_ending(self) -> bool:
        """Whether the store is being closed, or this master is deposed."""
        return self.is_closing or self.deposed is not None

    def begin_close(self) -> bool:
        """Take nothing more; return whether this is the first call."""
        with self.lock:
            if self.is_closing:
                return False
            self.is_closing = True
            self.work.notify()
        return True
