"""The engine of a writable store: staging, group commit, followers.

Writers stage under one short lock (`ganeti.store.staging`). One committer thread takes
all that has been staged, and makes it durable (`ganeti.store.committer`). Readers and
followers see it then (`ganeti.store.published`). Where bytes end up is the backend's
business, what candidates answer that of `ganeti.store.copies.peers`.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ganeti.base import errors
from ganeti.decisions.quorum import Term, Voters
from ganeti.model.objects import Snapshot
from ganeti.store.backend import ARCHIVE_TABLE, Backend, Copies
from ganeti.store.base import Batch, Change, ChangeSet, CopyState, Document, Done
from ganeti.store.committer import Committer
from ganeti.store.published import Published
from ganeti.store.staging import Request, Staging

if TYPE_CHECKING:
    from ganeti.store.copies.doubts import Doubts


class Engine:
    """A `ganeti.store.Store` over a backend.

    Its methods are thread-safe. What changes is in its parts, each of which says which
    thread or lock owns it.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        choose: Callable[[Term], Term],
        copies: Copies | None = None,
        on_deposed: Callable[[], None] | None = None,
        skipped: int = 0,
        doubts: "Doubts | None" = None,
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
        self._doubts = doubts
        self._copies = copies
        state = backend.open(choose)
        self._term = state.term
        # One revision more if a group that settles the candidate set may be needed.
        first = state.snapshot.revision + skipped + bool(state.voters.before)
        self._published = Published(state.snapshot, backend)
        self._staging = Staging(backend, copies, state.snapshot, first, on_deposed)
        self._committer = Committer(
            backend, copies, state, self._staging, self._published
        )
        if copies is not None:
            copies.use(state.features)
            copies.start(state.snapshot, state.term, state.voters, self.depose)
        self._committer.start()

    # Reading
    @property
    def term(self) -> Term:
        """The master term that this store was opened with."""
        return self._term

    @property
    def voters(self) -> Voters:
        """The candidate set in force."""
        return self._committer.voters

    def latest(self) -> Snapshot:
        """Return the newest snapshot, durable or being made so.

        It knows the addresses of nodes that become candidates by the commit under way,
        which waits for them.
        """
        return self._committer.latest

    def snapshot(self) -> Snapshot:
        """Return the newest durable snapshot; never blocks."""
        return self._published.snapshot

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
            feature in self._committer.used
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
        if node in self._committer.voters.everyone:
            self.commit([Document("meta", "term", str(self._term).encode())])
        return self._copies is None or self._copies.await_dropped(node, seconds)

    def exposure(self) -> str:
        """Return why changes are refused or may be lost; empty if they are not."""
        if self._staging.disk_failure:
            return self._staging.refusal
        return "" if self._copies is None else self._copies.exposure()

    def stall(self) -> str:
        """Return why the commit under way waits without limit; empty if none does."""
        is_waiting = self._copies is not None and self._copies.refuses
        return self.exposure() if is_waiting or self._staging.disk_failure else ""

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
        if self._staging.deposed is not None:
            raise errors.TermError(*self._staging.deposed.args)

    def note_refusal(self) -> None:
        """Take notice that a node has refused this master's term; returns at once."""
        if self._doubts is not None:
            self._doubts.note()

    def require_confirmed(self, give_up: threading.Event | None = None) -> None:
        """Block until a majority has confirmed the term since a node refused it."""
        self.require_leading()
        if self._doubts is not None:
            self._doubts.settle(self, give_up)
        # `settle` returns as well when the candidates have deposed this master.
        self.require_leading()

    def is_over(self) -> bool:
        """Return whether this node's own copy has promised another term."""
        return self._backend.promised() != self._term

    def follow(self, from_revision: int) -> Iterator[ChangeSet]:
        """Yield durable change-sets after a revision until the store is closed."""
        return self._published.follow(from_revision)

    @property
    def is_ending(self) -> bool:
        """Whether the store is being closed, or this master is deposed."""
        return self._staging.is_ending

    # Writing
    def writing(self) -> contextlib.AbstractContextManager[Batch]:
        """Change records: read, decide and commit as one step."""
        return self._staging.writing()

    def commit(self, changes: Sequence[Change]) -> int:
        """Make changes durable and return their revision; blocks."""
        request = Request(changes, None)
        request.make_waitable()
        self._staging.submit(request)
        return request.wait()

    def commit_soon(
        self,
        changes: Sequence[Change],
        done: Done | None = None,
        *,
        wait_s: float = 0.0,
    ) -> None:
        """Ask for a commit and return at once."""
        self._staging.submit(Request(changes, done), wait_s=wait_s)

    def leave_out(self, revision: int) -> None:
        """Give each later change a higher revision than this one."""
        self._staging.leave_out(revision)

    def depose(self, error: errors.TermError) -> None:
        """Refuse all changes from now on: another master has taken over, or may."""
        self._staging.depose(error)

    def close(self) -> None:
        """Finish what was asked for and close the files."""
        if not self._staging.begin_close():
            return
        if self._copies is not None:
            # Or the committer, which is joined next, could wait for a majority that
            # does not come back.
            self._copies.begin_close()
        self._committer.join()
        if self._copies is not None:
            self._copies.close()
        self._published.close()
        self._backend.close()
