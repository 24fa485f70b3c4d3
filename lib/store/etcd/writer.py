"""Writing groups to etcd: guarded transactions over the keys of `layout`.

Each group is one transaction, which is carried out only if three keys are as this
master left them: the end of the history, the term, and the leader's key. The last one
goes away with the lease, the second changes when another master begins. So nothing that
was sent before a takeover can be carried out after it.

A group that is too large for one transaction is *staged*: its payload is written in
pieces beside the rows, one small transaction moves the end of the history there, and
with that the group is durable. Its rows are put in their places afterwards. Whoever
reads the rows before that adds the staged ones.
"""

import logging
from collections.abc import Sequence

import msgspec

from ganeti.base import errors
from ganeti.decisions.quorum import Term
from ganeti.store import wire
from ganeti.store.backend import Group, OutcomeUnknownError, Row
from ganeti.store.etcd import layout, messages
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.layout import MAX_BYTES, MAX_OPERATIONS, Mark, Move
from ganeti.store.etcd.reader import (
    Guards,
    Overlay,
    Reader,
    guards_in,
    overlay_of,
    questions,
)

_log = logging.getLogger(__name__)


class Writer:
    """Moves the end of the history, as long as this is the master.

    It has no lock. The fields belong to the thread that opens the store, and then to
    the committer's. Others read `term`, the mark in `guards`, and `overlay`: each is
    replaced as a whole.
    """

    def __init__(self, gateway: Gateway, reader: Reader) -> None:
        """Begin without a term; the backend sets it."""
        self._gateway = gateway
        self._reader = reader
        self._keys = reader.keys
        self.guards = Guards(Mark())
        self.term = Term()
        #: Rows of the last group that are not in their places yet. Replaced as a whole.
        self.overlay: Overlay = {}

    def adopt(self, now: Guards) -> None:
        """Go on from a position at which nothing of this master is on its way."""
        self.guards = now
        self.overlay = self._reader.overlay(now.mark)

    def write(self, group: Group) -> None:
        """Make a group durable, all or nothing."""
        # The mark of the new group says nothing of the pieces of the one before, so
        # readers would miss the rows that are still among them.
        self.settle_first()
        rows = wire.rows_of(group)
        operations = [layout.operation(self._keys, row) for row in rows]
        if self._fits(rows, operations):
            self._move(layout.mark_of(group, rows), operations, group)
        else:
            self._write_staged(group, rows)

    def settle_first(self) -> None:
        """Put the rows of a staged group in their places before another write."""
        try:
            self.settle()
        except OutcomeUnknownError as err:
            raise errors.StorageError(f"store: not written: {err}") from err

    def _fits(self, rows: Sequence[Row], operations: Sequence[messages.Json]) -> bool:
        """Return whether one transaction can take the rows, each of them once."""
        return (
            len(rows) <= MAX_OPERATIONS
            and len(overlay_of(rows)) == len(rows)
            and sum(map(layout.size_of, operations)) <= MAX_BYTES
        )

    def _move(
        self, mark: Mark, operations: Sequence[messages.Json], group: Group
    ) -> None:
        """Move the end of the history to a group, in one transaction."""
        keys = self._keys
        body = messages.transaction(
            self.guards.conditions(keys),
            [messages.put(keys.end, layout.encode_mark(mark)), *operations],
            questions(keys),
        )
        answer = self._gateway.transact(body)
        if answer.succeeded:
            self.guards = self.guards.moved(mark, answer.header.revision)
            return
        # A request that got no answer was sent to another server as well, so it may
        # have been carried out before.
        now = guards_in(answer)
        if not (now.mark.is_of(group) and now.promised == self.term):
            raise self._over(now)
        self.guards = self.guards.moved(now.mark, now.end_at)

    def _write_staged(self, group: Group, rows: Sequence[Row]) -> None:
        payload = group.payload
        pieces = range(0, len(payload), MAX_BYTES)
        try:
            # The end is written again with that, so pieces of an earlier attempt which
            # arrive late are refused.
            self._rewrite(self.guards.mark, [self._remove_staged()])
            for number, start in enumerate(pieces):
                piece = payload[start : start + MAX_BYTES]
                self._carry_out([messages.put(self._keys.piece(number), piece)])
        except OutcomeUnknownError as err:
            raise errors.StorageError(f"store: not written: {err}") from err
        self._move(layout.mark_of(group, rows, staged=len(pieces)), [], group)
        self.overlay = overlay_of(rows)
        try:
            self.settle()
        except (errors.GenericError, OutcomeUnknownError) as err:
            # It is durable. The next write goes on with this, or the next master.
            _log.warning("revision %d: rows follow later: %s", group.revision, err)

    def settle(self) -> None:
        """Put the rows of a staged group in their places."""
        if not self.guards.mark.staged:
            return
        rows = [(*where, data) for where, data in self.overlay.items()]
        operations = (layout.operation(self._keys, row) for row in rows)
        for batch in layout.batches(operations):
            self._carry_out(batch)
        # Last, and in one transaction: whoever reads the mark finds either the pieces,
        # or all rows in their places.
        self._rewrite(
            msgspec.structs.replace(self.guards.mark, staged=0),
            [self._remove_staged()],
        )
        self.overlay = {}

    def _remove_staged(self) -> messages.Json:
        staged = self._keys.staged
        return messages.delete(staged, messages.after(staged))

    def _carry_out(self, operations: Sequence[messages.Json]) -> int:
        """Write if this is still the master; return the revision of etcd."""
        keys = self._keys
        answer = self._gateway.transact(
            messages.transaction(
                self.guards.conditions(keys), operations, questions(keys)
            )
        )
        if not answer.succeeded:
            raise self._over(guards_in(answer))
        return answer.header.revision

    def _rewrite(self, mark: Mark, operations: Sequence[messages.Json] = ()) -> None:
        """Write the mark of the last group again: what is on its way fails then."""
        value = messages.put(self._keys.end, layout.encode_mark(mark))
        at = self._carry_out([value, *operations])
        self.guards = self.guards.moved(mark, at)

    def _over(self, now: Guards) -> errors.TermError:
        if now.promised != self.term:
            text = f"now is term {now.promised}"
        elif now.leader_at != self.guards.leader_at:
            text = "its lease has ended"
        else:
            text = (
                f"wanted revision {self.guards.mark.revision}, found"
                f" {now.mark.revision}"
            )
        return errors.TermError(
            f"{self._gateway.servers}: term {self.term} is over: {text}"
        )

    def end(self) -> tuple[int, bytes]:
        """Return revision and digest of the last durable group, read again."""
        now = self._reader.look()
        if now.promised != self.term:
            raise self._over(now)
        if now.leader_at != self.guards.leader_at:
            # Without the lease nothing of this master can be carried out any more.
            return now.mark.end
        self.adopt(now)
        try:
            self._rewrite(now.mark)
        except OutcomeUnknownError as err:
            raise errors.StorageError(str(err)) from err
        except errors.TermError as err:
            # Perhaps by this request itself, sent twice: the caller asks again.
            raise errors.StorageError(str(err)) from err
        return now.mark.end

    def move_out(self, cluster: str) -> None:
        """Keep all masters out: the store was copied to a file.

        Args:
            cluster: uuid.

        Raises:
            StorageError: no server answers; repeat the move.
            TermError: another master has begun.
        """
        mark = self.guards.mark
        move = Move(cluster, mark.revision, mark.digest, is_out=True)
        try:
            self._carry_out(
                [messages.put(self._keys.moving, msgspec.json.encode(move))]
            )
        except OutcomeUnknownError as err:
            raise errors.StorageError(f"{err}; this can be repeated") from err
