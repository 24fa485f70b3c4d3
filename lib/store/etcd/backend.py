"""A master's store in etcd: guarded transactions over the keys of `layout`.

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
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.decisions.quorum import Term, Voters, next_number, refusal
from ganeti.model.objects import TABLES, Snapshot
from ganeti.store import features, wire
from ganeti.store.backend import (
    ArchivePage,
    ArchiveTables,
    Group,
    Limits,
    OutcomeUnknownError,
    Row,
    State,
)
from ganeti.store.copies import voters
from ganeti.store.engine import Engine
from ganeti.store.etcd import layout, messages
from ganeti.store.etcd.address import Servers
from ganeti.store.etcd.gateway import CompactedError, Gateway
from ganeti.store.etcd.layout import MAX_BYTES, MAX_OPERATIONS, Mark, Move
from ganeti.store.etcd.lease import TTL_S, LeaseKeeper
from ganeti.store.etcd.reader import (
    Guards,
    Overlay,
    Reader,
    guards_in,
    overlay_of,
    questions,
)

_log = logging.getLogger(__name__)

#: Attempts to read a copy while the servers forget the past.
_ATTEMPTS: Final = 3

_LIMITS: Final = Limits(
    group=MAX_BYTES // 2,  # joined commits fit in one transaction
    commit=64 * 1024 * 1024,
    value=MAX_BYTES - 64 * 1024,
)


class Claim(NamedTuple):
    """How a leadership begins and ends.

    Attributes:
        is_forced: take it from a master that has the lease: the administrator, or the
            new master itself, wants that.
        needs_vacancy: refuse even while a master of the same node has the lease.
        gives_back: end the lease when the store is closed. Otherwise the same node may
            begin again before another one can.
    """

    is_forced: bool = False
    needs_vacancy: bool = False
    gives_back: bool = True


_USUAL: Final = Claim()


def _owner(term: Term | None) -> str:
    return "nobody" if term is None else term.owner


class EtcdBackend:
    """The live state, the archive and the change log of a store in etcd."""

    limits = _LIMITS
    place = "a majority of the etcd servers"

    def __init__(
        self,
        servers: Servers,
        *,
        clock: clock_module.Clock,
        on_lost: Callable[[], None] = lambda: None,
        ttl_s: int = TTL_S,
        claim: Claim = _USUAL,
    ) -> None:
        """Remember the servers; `open` connects.

        Args:
            servers: of the store.
            clock: measures the lease.
            on_lost: called once, from any thread, when the lease is over.
            ttl_s: seconds of the lease.
            claim: how the leadership begins and ends.
        """
        self._claim = claim
        self._gateway = Gateway(servers)
        self._reader = Reader(self._gateway)
        self._keys = self._reader.keys
        self._lease = LeaseKeeper(
            self._gateway, clock, on_lost, ttl_s, self._is_leading
        )
        self._guards = Guards(Mark())
        self._term = Term()
        #: Rows of the last group that are not in their places yet. Replaced as a whole.
        self._overlay: Overlay = {}

    # Beginning and ending
    def open(self, choose: Callable[[Term], Term]) -> State:
        """Load everything and begin a new term, in one transaction."""
        lease = self._lease.start()
        try:
            features.require(self._features(), str(self._gateway.servers))
            while not self._begin(choose, lease):
                pass
            self._settle()
            return self._load()
        except OutcomeUnknownError as err:
            self._lease.stop()
            raise errors.StorageError(f"the term was not begun: {err}") from err
        except BaseException:
            self._lease.stop()
            raise

    def _begin(self, choose: Callable[[Term], Term], lease: int) -> bool:
        """Try to become the leader; return false if somebody else wrote just then."""
        self._check_move()
        seen, keys = self._reader.look(), self._keys
        term = choose(seen.promised)
        self._check_term(seen, term)
        text = str(term).encode()
        # The end is written as it is, so that a transaction of an earlier master that
        # arrives late fails.
        body = messages.transaction(
            [*seen.conditions(keys), messages.is_at(keys.moving, 0)],
            [
                messages.put(keys.end, layout.encode_mark(seen.mark)),
                messages.put(keys.term, text),
                messages.put(keys.leader, text, lease),
            ],
        )
        self._gateway.transact(body)
        # Read, not taken from the answer, which may be that of a repetition.
        now = self._reader.look()
        if now.leader is None or now.leader.lease != lease:
            return False
        self._term = term
        self._adopt(now)
        return True

    def _check_term(self, seen: Guards, term: Term) -> None:
        reason = refusal(seen.promised, term)
        leading = seen.leading
        if reason is None and term.number == seen.promised.number:
            reason = f"term {term} has been used"
        # A master that was killed may start again before its lease ends.
        is_other = leading is not None and (
            leading.owner != term.owner or self._claim.needs_vacancy
        )
        if reason is None and is_other and not self._claim.is_forced:
            reason = f"{_owner(leading)} is master, and its lease has not ended"
        if reason is not None:
            raise errors.TermError(f"{self._gateway.servers}: {reason}")

    def _check_move(self) -> None:
        moving = self._reader.moving()
        if moving is None:
            return
        how = "was moved to a file" if moving.move.is_out else "is not complete"
        raise errors.ConfigurationError(
            f"{self._gateway.servers}: the store of cluster {moving.move.cluster}"
            f" {how}; it must be moved here again before a master can begin"
        )

    def _adopt(self, now: Guards) -> None:
        """Go on from a position at which nothing of this master is on its way."""
        self._guards = now
        self._overlay = self._reader.overlay(now.mark)

    def _load(self) -> State:
        mark = self._guards.mark
        updates = [
            update
            for table in TABLES
            for update in wire.to_updates(table, self.scan(table, ""))
        ]
        snapshot = Snapshot().apply(
            updates, revision=mark.revision, term=self._term.number
        )
        stored = self.read("meta", voters.KEY)
        return State(
            snapshot,
            mark.end[1],
            self._term,
            voters.decode(stored) if stored else Voters(voters.candidates_of(snapshot)),
            self._features(),
        )

    def _features(self) -> features.Features:
        return features.decode(self.read("meta", features.KEY))

    def _is_leading(self) -> bool:
        """Return false if a master of another node has begun."""
        if self._term == Term():
            return True
        try:
            return self._reader.look().promised.owner == self._term.owner
        except (errors.GenericError, CompactedError):
            return True  # not known; the lease ends if that lasts

    def close(self) -> None:
        """Give up the leadership."""
        self._lease.stop(gives_back=self._claim.gives_back)
        self._gateway.close()

    def promised(self) -> Term:
        """Return the term that is stored.

        Without an answer it is ours while the lease lasts, and none after that.
        """
        try:
            return self._reader.look().promised
        except errors.StorageError:
            return self._term if self._lease.is_held else Term()

    # Writing
    def write(self, group: Group) -> None:
        """Make a group durable, all or nothing."""
        self._settle_first()
        rows = wire.rows_of(group)
        operations = [layout.operation(self._keys, row) for row in rows]
        if self._fits(rows, operations):
            self._move(layout.mark_of(group, rows), operations, group)
        else:
            self._write_staged(group, rows)

    def _settle_first(self) -> None:
        try:
            self._settle()
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
            self._guards.conditions(keys),
            [messages.put(keys.end, layout.encode_mark(mark)), *operations],
            questions(keys),
        )
        answer = self._gateway.transact(body)
        if answer.succeeded:
            self._guards = self._guards.moved(mark, answer.header.revision)
            return
        # A request that got no answer was sent to another server as well, so it may
        # have been carried out before.
        now = guards_in(answer)
        if not (now.mark.is_of(group) and now.promised == self._term):
            raise self._over(now)
        self._guards = self._guards.moved(now.mark, now.end_at)

    def _write_staged(self, group: Group, rows: Sequence[Row]) -> None:
        payload = group.payload
        pieces = range(0, len(payload), MAX_BYTES)
        try:
            # The end is written again with that, so pieces of an earlier attempt which
            # arrive late are refused.
            self._rewrite(self._guards.mark, [self._remove_staged()])
            for number, start in enumerate(pieces):
                piece = payload[start : start + MAX_BYTES]
                self._carry_out([messages.put(self._keys.piece(number), piece)])
        except OutcomeUnknownError as err:
            raise errors.StorageError(f"store: not written: {err}") from err
        self._move(layout.mark_of(group, rows, staged=len(pieces)), [], group)
        self._overlay = overlay_of(rows)
        try:
            self._settle()
        except (errors.GenericError, OutcomeUnknownError) as err:
            # It is durable. The next write goes on with this, or the next master.
            _log.warning("revision %d: rows follow later: %s", group.revision, err)

    def _settle(self) -> None:
        """Put the rows of a staged group in their places."""
        if not self._guards.mark.staged:
            return
        rows = [(*where, data) for where, data in self._overlay.items()]
        operations = (layout.operation(self._keys, row) for row in rows)
        for batch in layout.batches(operations):
            self._carry_out(batch)
        self._rewrite(
            msgspec.structs.replace(self._guards.mark, staged=0),
            [self._remove_staged()],
        )
        self._overlay = {}

    def _remove_staged(self) -> messages.Json:
        staged = self._keys.staged
        return messages.delete(staged, messages.after(staged))

    def _carry_out(self, operations: Sequence[messages.Json]) -> int:
        """Write if this is still the master; return the revision of etcd."""
        keys = self._keys
        answer = self._gateway.transact(
            messages.transaction(
                self._guards.conditions(keys), operations, questions(keys)
            )
        )
        if not answer.succeeded:
            raise self._over(guards_in(answer))
        return answer.header.revision

    def _rewrite(self, mark: Mark, operations: Sequence[messages.Json] = ()) -> None:
        """Write the mark of the last group again: what is on its way fails then."""
        value = messages.put(self._keys.end, layout.encode_mark(mark))
        at = self._carry_out([value, *operations])
        self._guards = self._guards.moved(mark, at)

    def _over(self, now: Guards) -> errors.TermError:
        if now.promised != self._term:
            text = f"now is term {now.promised}"
        elif now.leader_at != self._guards.leader_at:
            text = "its lease has ended"
        else:
            text = (
                f"wanted revision {self._guards.mark.revision}, found"
                f" {now.mark.revision}"
            )
        return errors.TermError(
            f"{self._gateway.servers}: term {self._term} is over: {text}"
        )

    def end(self) -> tuple[int, bytes]:
        """Return revision and digest of the last durable group, read again."""
        now = self._reader.look()
        if now.promised != self._term:
            raise self._over(now)
        if now.leader_at != self._guards.leader_at:
            # Without the lease nothing of this master can be carried out any more.
            return now.mark.end
        self._adopt(now)
        try:
            self._rewrite(now.mark)
        except OutcomeUnknownError as err:
            raise errors.StorageError(str(err)) from err
        except errors.TermError as err:
            # Perhaps by this request itself, sent twice: the caller asks again.
            raise errors.StorageError(str(err)) from err
        return now.mark.end

    def probe(self) -> None:
        """Check that the servers take a write."""
        self.end()
        self._settle_first()

    def move_out(self, cluster: str) -> None:
        """Keep all masters out: the store was copied to a file.

        Args:
            cluster: uuid.

        Raises:
            StorageError: no server answers; repeat the move.
            TermError: another master has begun.
        """
        mark = self._guards.mark
        move = Move(cluster, mark.revision, mark.digest, is_out=True)
        try:
            self._carry_out(
                [messages.put(self._keys.moving, msgspec.json.encode(move))]
            )
        except OutcomeUnknownError as err:
            raise errors.StorageError(f"{err}; this can be repeated") from err

    # Reading
    @property
    def archive(self) -> ArchiveTables:
        """The archived jobs: rows like all others."""
        return ArchiveTables(self)

    def read(self, table: str, key: str) -> bytes | None:
        """Return one durable document."""
        overlay = self._overlay
        if (table, key) in overlay:
            return overlay[table, key]
        return self._reader.read(table, key)

    def scan(self, table: str, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield durable documents in the order of their keys."""
        return self._rows(table, prefix, None)

    def _rows(
        self, table: str, prefix: str, after: str | None
    ) -> Iterator[tuple[str, bytes]]:
        staged = {
            key: data
            for (where, key), data in self._overlay.items()
            if where == table and key.startswith(prefix) and key > (after or "")
        }
        stored = self._reader.rows(table, prefix, after=after)
        if not staged:
            return stored
        present = dict(stored) | staged
        return iter(
            sorted((k, data) for k, data in present.items() if data is not None)
        )

    def page(self, cursor: str, size: int) -> tuple[int, ArchivePage, list[Row]]:
        """Return the durable revision, and some rows of the archive."""
        table, _separator, after = cursor.partition("/")
        revision, rows = self._guards.mark.revision, list[Row]()
        for key, data in self._rows(table, "", after):
            rows.append((table, key, data))
            size -= len(data)
            if size <= 0:
                break
        upto = rows[-1][1] if rows else None
        return revision, ArchivePage(table, after, upto, is_whole=True), rows

    def changes_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        """Return the groups after a revision, None when they are not kept."""
        return self._reader.groups_since(revision, digest)

    def dump(self) -> bytes:
        """Return all that a copy needs."""
        for _attempt in range(_ATTEMPTS):
            try:
                return wire.pack_copy(self._reader.copy()[0])
            except CompactedError as err:
                reason = str(err)
        raise errors.StorageError(f"{self._gateway.servers}: {reason}")


def open_etcd(
    servers: Servers,
    *,
    clock: clock_module.Clock,
    node: str,
    seen_term: int = 0,
    on_deposed: Callable[[], None] | None = None,
    ttl_s: int = TTL_S,
    claim: Claim = _USUAL,
) -> Engine:
    """Open the store for writing, with a new term, as its only master.

    Args:
        servers: of the store.
        clock: measures the lease.
        node: uuid of this node.
        seen_term: highest number of a term that is known elsewhere.
        on_deposed: called once, from any thread, when the lease is over or another
            master has taken over.
        ttl_s: seconds after which the lease of a silent master ends.
        claim: how the leadership begins and ends.

    Raises:
        ConfigurationError: what is stored is damaged, or of another version.
        StorageError: no majority of the servers answers.
        TermError: another node is master.
    """

    def choose(promised: Term) -> Term:
        return Term(next_number(promised.number, [seen_term]), node)

    def lost() -> None:
        is_lost.set()
        for engine in made:
            engine.depose(errors.TermError(f"{servers}: the lease is over"))

    is_lost = threading.Event()
    made: list[Engine] = []
    backend = EtcdBackend(servers, clock=clock, on_lost=lost, ttl_s=ttl_s, claim=claim)
    try:
        made.append(Engine(backend, choose=choose, on_deposed=on_deposed))
    except BaseException:
        backend.close()
        raise
    if is_lost.is_set():  # before the engine was there
        lost()
    return made[0]
