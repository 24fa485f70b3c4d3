"""Lists of whole objects as JSON text, kept between the answers of one daemon.

Few objects change between two lists. So the members of a row that come from the
configuration are encoded once, and encoded again when the row's record, one of its
disks, or a table that applies to all rows changes. Records are immutable, so the
identity of a record proves that nothing changed. Nodes are asked for each list. Their
answers are reduced to the few values that decide the live members of a row, and these
members are encoded again when one of these values changes. If nothing changed at all,
the text of the list before is the answer.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.master.query.model import Getter, QueryContext, Resource
from ganeti.model.objects import Instance
from ganeti.protocols.rapi.row_parts import object_of

#: Tables on which the members of every row may depend. Instances and disks are not
#: among them: those of a row are compared one by one.
_SHARED: Final = ("cluster", "nodes", "nodegroups", "networks")
#: Resources whose rows depend on their own record, their disks and `_SHARED` alone.
_RESOURCES: Final = frozenset({"instance"})
#: Lists of fields that are kept, and the most bytes of each.
_MAX_LISTS: Final = 2
_MAX_BYTES: Final = 32 * 1024 * 1024

_encode: Final = msgspec.json.Encoder().encode


def objects_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Return rows as a list of objects."""
    return _encode([object_of(names, row) for row in rows])


def keeps(resource: Resource) -> bool:
    """Return whether texts of a resource may be kept."""
    return resource.name in _RESOURCES


class _Run(NamedTuple):
    """Neighbouring members of an object, all live or all not."""

    names: Sequence[str]
    is_live: bool


class _Members:
    """Encodes one run of members of a row."""

    def __init__(
        self, names: Sequence[str], getters: Sequence[Getter], before: bytes
    ) -> None:
        self._names = names
        self._getters = getters
        self._before = before

    def __call__(self, row: Instance) -> bytes:
        """Return the members with what is before them, without the object's end."""
        values = [get(row)[1] for get in self._getters]
        return self._before + _encode(object_of(self._names, values))[1:-1]


class _Row(NamedTuple):
    """Encoded members of one row, and what they were computed from."""

    record: Instance
    disks: tuple[Any, ...]
    state: tuple[Any, ...]
    fixed: tuple[bytes, ...]
    live: tuple[bytes, ...]


class _List:
    """The text of one list of fields; for use by many threads."""

    def __init__(self, resource: Resource, names: Sequence[str]) -> None:
        self._resource = resource
        self._runs = list(_runs(resource, names))
        self._lock = threading.Lock()
        self._tables: tuple[Any, ...] = ()
        self._states: list[tuple[Any, ...]] = []
        self._rows: dict[str, _Row] = {}
        self._text: bytes | None = None

    def text(self, context: QueryContext, rows: Sequence[Instance]) -> bytes:
        """Return the list of all objects of a context whose live data are loaded."""
        columns = [
            self._resource.states[need](context, rows) for need in sorted(context.live)
        ]
        states = list(zip(*columns, strict=True)) if columns else [()] * len(rows)
        snapshot = context.snapshot
        shared = tuple(snapshot.table(name) for name in _SHARED)
        tables = (*shared, snapshot.instances, snapshot.disks)
        with self._lock:
            if (
                self._text is not None
                and _are_same(tables, self._tables)
                and states == self._states
            ):
                return self._text
            if not _are_same(shared, self._tables[: len(shared)]):
                self._rows = {}
            rows_now = self._update(context, rows, states)
            text = self._join(rows_now.values())
            if len(text) <= _MAX_BYTES:
                self._rows, self._tables, self._states = rows_now, tables, states
                self._text = text
            else:
                self._rows, self._tables, self._text = {}, (), None
            return text

    def _update(
        self,
        context: QueryContext,
        rows: Sequence[Instance],
        states: Sequence[tuple[Any, ...]],
    ) -> dict[str, _Row]:
        """Return the rows by UUID, with those members encoded again that changed."""
        fixed, live = self._encoders(context)
        disk, known = context.snapshot.disks.get, self._rows
        actual: dict[str, _Row] = {}
        for record, state in zip(rows, states, strict=True):
            disks = tuple(map(disk, record.disks))
            row = known.get(record.uuid)
            if (
                row is None
                or row.record is not record
                or not _are_same(row.disks, disks)
            ):
                row = _Row(
                    record,
                    disks,
                    state,
                    tuple([members(record) for members in fixed]),
                    tuple([members(record) for members in live]),
                )
            elif row.state != state:
                again = tuple([members(record) for members in live])
                row = row._replace(state=state, live=again)
            actual[record.uuid] = row
        return actual

    def _encoders(self, context: QueryContext) -> tuple[list[_Members], list[_Members]]:
        """Return the encoders of the fixed and of the live runs, in their order."""
        encoders: tuple[list[_Members], list[_Members]] = ([], [])
        before = b"{"
        for run in self._runs:
            getters = self._resource.getters(context, run.names)
            encoders[run.is_live].append(_Members(run.names, getters, before))
            before = b","
        return encoders

    def _join(self, rows: Iterable[_Row]) -> bytes:
        """Return the text of the list; both kinds of runs alternate."""
        starts_live = bool(self._runs) and self._runs[0].is_live
        parts: list[bytes] = []
        before = b"["
        for row in rows:
            first, second = (
                (row.live, row.fixed) if starts_live else (row.fixed, row.live)
            )
            parts.append(before)
            for index, part in enumerate(first):
                parts.append(part)
                if index < len(second):
                    parts.append(second[index])
            before = b"},"
        parts.append(b"}]" if parts else b"[]")
        return b"".join(parts)


class EncodedLists:
    """A bounded store of lists; for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By resource and names of fields; the list that was used last comes last.
        self._lists: dict[tuple[str, tuple[str, ...]], _List] = {}
        #: Table and sorted rows by resource.
        self._sorted: dict[str, tuple[Any, Sequence[Instance]]] = {}

    def rows(self, resource: Resource, context: QueryContext) -> Sequence[Instance]:
        """Return all rows of a resource, sorted again after a change of its table."""
        table = context.snapshot.instances
        known = self._sorted.get(resource.name)
        if known is not None and known[0] is table:
            return known[1]
        rows = resource.rows(context, None)
        self._sorted[resource.name] = (table, rows)
        return rows

    def text(
        self,
        resource: Resource,
        context: QueryContext,
        names: Sequence[str],
        rows: Sequence[Instance],
    ) -> bytes:
        """Return all objects of a resource as JSON text.

        Args:
            resource: see `keeps`.
            context: its live data are loaded.
            names: names of fields, each once.
            rows: see `rows`.
        """
        with self._lock:
            key = (resource.name, tuple(names))
            actual = self._lists.pop(key, None) or _List(resource, names)
            self._lists[key] = actual
            while len(self._lists) > _MAX_LISTS:
                del self._lists[next(iter(self._lists))]
        return actual.text(context, rows)


def _are_same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether two sequences have the identical items."""
    return len(left) == len(right) and all(
        a is b for a, b in zip(left, right, strict=True)
    )


def _runs(resource: Resource, names: Sequence[str]) -> Iterator[_Run]:
    """Yield the longest runs of neighbouring members, all live or all not."""
    start = 0
    for index in range(1, len(names) + 1):
        is_live = _is_live(resource.fields, names[start])
        if index == len(names) or _is_live(resource.fields, names[index]) != is_live:
            yield _Run(names[start:index], is_live)
            start = index


def _is_live(fields: Mapping[str, Any], name: str) -> bool:
    return name in fields and bool(fields[name].live)
