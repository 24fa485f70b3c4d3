"""Reading a store in etcd: for its master, and for all others.

Every method reads the newest state that a majority of the servers has, or the state at
a past revision of etcd (``at``), if that is still kept.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.decisions.quorum import Term, parse_term
from ganeti.model.objects import TABLES
from ganeti.store import wire
from ganeti.store.backend import Group, Row, chain
from ganeti.store.etcd import layout, messages
from ganeti.store.etcd.gateway import CompactedError, Gateway
from ganeti.store.etcd.layout import Keys, Mark, Move

#: Keys read by one request.
_PAGE: Final = 128
#: Groups that `Reader.groups_since` looks back.
_MAX_GROUPS: Final = 4096
#: Seconds for the servers to send the changes that they keep.
_CHANGES_S: Final = 30.0
#: Rows whose present form is elsewhere: table, key -> data, or None if removed.
Overlay = Mapping[tuple[str, str], bytes | None]


class Guards(NamedTuple):
    """The keys that guard each transaction, as they were at one moment.

    Attributes:
        mark: the end of the history.
        end_at: revision of etcd that wrote it, 0 if nothing has.
        promised: the newest term.
        term_at: revision of etcd that wrote it.
        leader: the leader's key; None if nobody has the lease.
        at: revision of etcd of that moment.
    """

    mark: Mark
    end_at: int = 0
    promised: Term = Term()
    term_at: int = 0
    leader: messages.KeyValue | None = None
    at: int = 0

    @property
    def leader_at(self) -> int:
        """Revision of etcd that wrote the leader's key."""
        return 0 if self.leader is None else self.leader.mod_revision

    @property
    def leading(self) -> Term | None:
        """The term of the master that has the lease; None if nobody has."""
        return None if self.leader is None else _term(self.leader.value)

    def conditions(self, keys: Keys) -> list[messages.Json]:
        """Return the conditions that nothing of this has changed."""
        return [
            messages.is_at(keys.end, self.end_at),
            messages.is_at(keys.term, self.term_at),
            messages.is_at(keys.leader, self.leader_at),
        ]

    def moved(self, mark: Mark, at: int) -> "Guards":
        """Return the guards after a transaction that moved the end."""
        return self._replace(mark=mark, end_at=at, at=at)


class Moving(NamedTuple):
    """A move of the store, and the revision of etcd that wrote it."""

    move: Move
    at: int


def guards_in(answer: messages.TxnAnswer) -> Guards:
    """Return the guards in the answer to `questions`. Raises ConfigurationError."""
    end, term, leader = (answer.first(number) for number in range(3))
    return Guards(
        layout.decode_mark(None if end is None else end.value),
        0 if end is None else end.mod_revision,
        Term() if term is None else _term(term.value),
        0 if term is None else term.mod_revision,
        leader,
        answer.header.revision,
    )


def questions(keys: Keys, at: int = 0) -> list[messages.Json]:
    """Return the operations that read the guards."""
    return [
        {"request_range": messages.get(key, revision=at)}
        for key in (keys.end, keys.term, keys.leader)
    ]


def overlay_of(rows: Sequence[Row]) -> Overlay:
    """Return rows by table and key; the last one of a key wins."""
    return {(table, key): data for table, key, data in rows}


def _term(value: bytes) -> Term:
    try:
        return parse_term(value.decode())
    except ValueError as err:
        raise errors.ConfigurationError(f"term in etcd: damaged: {err}") from err


class Reader:
    """Reads one store; thread-safe."""

    def __init__(self, gateway: Gateway) -> None:
        """Remember the servers; nothing is sent yet."""
        self.gateway = gateway
        self.keys = Keys(gateway.servers.prefix)

    def look(self, at: int = 0) -> Guards:
        """Return the guards.

        Raises:
            StorageError: no server answers.
            ConfigurationError: a key is damaged.
        """
        body = messages.transaction([], questions(self.keys, at))
        return guards_in(self.gateway.fetch("kv/txn", body, messages.TxnAnswer))

    def moving(self) -> Moving | None:
        """Return a move of the store; None if there is none.

        Raises:
            StorageError: no server answers.
            ConfigurationError: the key is damaged.
        """
        body = messages.get(self.keys.moving)
        stored = self.gateway.fetch("kv/range", body, messages.RangeAnswer).kvs
        if not stored:
            return None
        return Moving(layout.decode_move(stored[0].value), stored[0].mod_revision)

    def read(self, table: str, key: str) -> bytes | None:
        """Return one row, without those that are staged."""
        body = messages.get(self.keys.row(table, key))
        stored = self.gateway.fetch("kv/range", body, messages.RangeAnswer).kvs
        return layout.unpack(stored[0].value) if stored else None

    def rows(
        self, table: str, prefix: str = "", *, after: str | None = None, at: int = 0
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the rows of a table in the order of their keys, without staged ones.

        Args:
            table: of the rows.
            prefix: of their keys.
            after: key before the first; None for the first of all.
            at: revision of etcd; 0 for the present, which may change between rows.
        """
        start = self.keys.row(table, prefix)
        end = messages.after(start)
        if after is not None:
            start = max(start, self.keys.row(table, after) + b"\0")
        for page in self.gateway.range(start, end, at, _PAGE):
            for item in page:
                yield self.keys.row_of(item.key)[1], layout.unpack(item.value)

    def overlay(self, mark: Mark, at: int = 0) -> Overlay:
        """Return the rows of a staged group.

        Raises:
            StorageError: they cannot be read, or a piece is missing.
        """
        if not mark.staged:
            return {}
        return overlay_of(wire.decode_rows(self._staged(mark, at)))

    def _staged(self, mark: Mark, at: int) -> bytes:
        keys = self.keys
        pages = self.gateway.range(keys.staged, messages.after(keys.staged), at, 8)
        pieces = [item.value for page in pages for item in page]
        payload = b"".join(pieces[: mark.staged])
        if chain(bytes.fromhex(mark.parent), payload).hex() != mark.digest:
            raise errors.StorageError(
                f"{self.gateway.servers}: revision {mark.revision} is incomplete"
            )
        return payload

    def copy(self) -> tuple[wire.Copy, Guards]:
        """Return all but the archive, and the guards, as they are at one moment.

        Raises:
            StorageError: no server answers.
            CompactedError: the moment is no longer kept; try again.
        """
        now = self.look()
        stored: dict[tuple[str, str], bytes | None] = {
            (table, key): data
            for table in (*TABLES, "jobs", "joblogs", "meta", "journal")
            for key, data in self.rows(table, at=now.at)
        }
        # The archive has tables of its own, so what is staged for it is left out.
        stored |= {
            where: data
            for where, data in self.overlay(now.mark, now.at).items()
            if where[0] != "archive"
        }
        live = {
            key for (table, key), data in stored.items() if table == "jobs" and data
        }
        rows: list[Row] = [
            (table, key, data)
            for (table, key), data in stored.items()
            if data is not None
            and (table != "joblogs" or key.partition("/")[0] in live)
        ]
        mark = now.mark
        copy = wire.Copy(
            mark.revision, now.promised.number, mark.end[1], rows, mark.term, []
        )
        return copy, now

    # The change log
    def groups_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        """Return the groups after a revision of the store; None if they are not kept.

        With a digest, also None when the history up to that revision was another.
        """
        try:
            return self._groups_since(revision, digest)
        except CompactedError:
            return None

    def _groups_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        marks = self._marks_since(revision)
        if marks is None:
            return None
        if not marks:
            mark = self.look().mark
            first = mark.revision, mark.digest
        else:
            first = marks[0][1].base, marks[0][1].parent
        if digest is not None and first != (revision, digest.hex()):
            return None
        if first[0] > revision:
            return None
        return self._groups(marks)

    def _marks_since(self, revision: int) -> list[tuple[int, Mark]] | None:
        """Return revision of etcd and mark of each group, in order."""
        marks: list[tuple[int, Mark]] = []
        at, mark = self._mark_at(0)
        while mark.revision > revision:
            if len(marks) == _MAX_GROUPS:
                return None
            before_at, before = self._mark_at(at - 1)
            # A mark that is written again, as it is, is not a group.
            if before.revision < mark.revision:
                marks.append((at, mark))
            at, mark = before_at, before
        return marks[::-1]

    def _mark_at(self, at: int) -> tuple[int, Mark]:
        body = messages.get(self.keys.end, revision=at)
        stored = self.gateway.fetch("kv/range", body, messages.RangeAnswer).kvs
        if not stored:
            return 0, Mark()
        return stored[0].mod_revision, layout.decode_mark(stored[0].value)

    def group_in(
        self, events: Sequence[messages.Event]
    ) -> tuple[Mark, Group | None, Term | None] | None:
        """Return what one transaction did to the history.

        Args:
            events: all that it wrote and removed.

        Returns:
            The end of the history, its group and a new term; no group if the mark of
            the last one was written again. None if the end was not written.

        Raises:
            StorageError: a staged group cannot be read.
            CompactedError: it is no longer kept.
            ConfigurationError: a key or value is damaged.
        """
        written = {event.kv.key: event.kv for event in events if event.type == "PUT"}
        end = written.get(self.keys.end)
        if end is None:
            return None
        mark = layout.decode_mark(end.value)
        new = written.get(self.keys.term)
        term = None if new is None else _term(new.value)
        if mark.staged:
            payload = self._staged(mark, end.mod_revision)
        else:
            rows = [
                (*self.keys.row_of(key), layout.unpack(item.value))
                for key, item in written.items()
                if key.startswith(self.keys.rows)
            ]
            payload = wire.encode_rows(layout.rows_with_removed(rows, mark))
        group = mark.to_group(payload)
        is_whole = chain(group.parent, group.payload) == group.digest
        return mark, group if is_whole else None, term

    def _groups(self, marks: Sequence[tuple[int, Mark]]) -> list[Group] | None:
        """Return the groups of some marks; None if one is not kept as it was."""
        wanted = {at for at, _mark in marks}
        groups: list[Group | None] = []

        def take(events: list[messages.Event]) -> bool:
            for at, its in by_transaction(events):
                if at in wanted:
                    actual = self.group_in(its)
                    groups.append(None if actual is None else actual[1])
            return len(groups) < len(wanted)

        if wanted:
            start = min(wanted)
            self.gateway.watch(self.keys.root, start, take, timeout_s=_CHANGES_S)
        whole = [group for group in groups if group is not None]
        return whole if len(whole) == len(marks) else None


def by_transaction(
    events: Iterable[messages.Event],
) -> Iterator[tuple[int, list[messages.Event]]]:
    """Yield revision of etcd and events of each transaction."""
    for at, its in itertools.groupby(events, lambda event: event.kv.mod_revision):
        yield at, list(its)
