"""A master's store in etcd, as the engine needs it.

How a leadership begins and ends is here; writing is `ganeti.store.etcd.writer`, reading
`ganeti.store.etcd.reader`.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

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
from ganeti.store.etcd.layout import MAX_BYTES
from ganeti.store.etcd.lease import TTL_S, LeaseKeeper
from ganeti.store.etcd.reader import Guards, Reader
from ganeti.store.etcd.writer import Writer

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
        self._writer = Writer(self._gateway, self._reader)

    # Beginning and ending
    def open(self, choose: Callable[[Term], Term]) -> State:
        """Load everything and begin a new term, in one transaction."""
        lease = self._lease.start()
        try:
            features.require(self._features(), str(self._gateway.servers))
            while not self._begin(choose, lease):
                pass
            self._writer.settle()
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
        self._writer.term = term
        self._writer.adopt(now)
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

    def _load(self) -> State:
        mark = self._writer.guards.mark
        updates = [
            update
            for table in TABLES
            for update in wire.to_updates(table, self.scan(table, ""))
        ]
        snapshot = Snapshot().apply(
            updates, revision=mark.revision, term=self._writer.term.number
        )
        stored = self.read("meta", voters.KEY)
        return State(
            snapshot,
            mark.end[1],
            self._writer.term,
            voters.decode(stored) if stored else Voters(voters.candidates_of(snapshot)),
            self._features(),
        )

    def _features(self) -> features.Features:
        return features.decode(self.read("meta", features.KEY))

    def _is_leading(self) -> bool:
        """Return false if a master of another node has begun."""
        if self._writer.term == Term():
            return True
        try:
            return self._reader.look().promised.owner == self._writer.term.owner
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
            return self._writer.term if self._lease.is_held else Term()

    # Writing
    def write(self, group: Group) -> None:
        """Make a group durable, all or nothing."""
        self._writer.write(group)

    def end(self) -> tuple[int, bytes]:
        """Return revision and digest of the last durable group, read again."""
        return self._writer.end()

    def probe(self) -> None:
        """Check that the servers take a write."""
        self._writer.end()
        self._writer.settle_first()

    def move_out(self, cluster: str) -> None:
        """Keep all masters out: the store was copied to a file.

        Args:
            cluster: uuid.

        Raises:
            StorageError: no server answers; repeat the move.
            TermError: another master has begun.
        """
        self._writer.move_out(cluster)

    # Reading
    @property
    def archive(self) -> ArchiveTables:
        """The archived jobs: rows like all others."""
        return ArchiveTables(self)

    def read(self, table: str, key: str) -> bytes | None:
        """Return one durable document."""
        overlay = self._writer.overlay
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
            for (where, key), data in self._writer.overlay.items()
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
        revision, rows = self._writer.guards.mark.revision, list[Row]()
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
