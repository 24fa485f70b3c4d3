"""Encoded configuration cells of whole tables, shared by the answers of one daemon.

Few objects change between two bulk lists. So the values of the configuration fields of
a row are encoded once, and encoded again when the row's record, one of its disks, or a
table that applies to all rows changes. Records are immutable, so the identity of a
record proves that nothing changed. Live fields are never kept.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.objects import Instance, Snapshot
from ganeti.query.model import UNKNOWN, Getter, QueryContext, Resource

#: Tables on which the cells of every row may depend. Instances and disks are not among
#: them: those of a row are compared one by one.
_SHARED: Final = ("cluster", "nodes", "nodegroups", "networks")
#: Resources whose rows depend on their own record, their disks and `_SHARED` alone.
_RESOURCES: Final = frozenset({"instance"})
#: Fewer configuration fields are computed faster than their encoded form is found.
_FEWEST_FIELDS: Final = 8
#: Lists of fields that are kept, and the most bytes of each.
_MAX_LISTS: Final = 2
_MAX_BYTES: Final = 32 * 1024 * 1024

_encoder: Final = msgspec.json.Encoder()


class _Row(NamedTuple):
    """Encoded cells of one row, and the records that they were computed from."""

    record: Instance
    disks: tuple[Any, ...]
    parts: tuple[msgspec.Raw, ...]


class _Run(NamedTuple):
    """Neighbouring fields of an answer: their indices, and whether they are live."""

    indices: range
    is_live: bool


class _List:
    """Encoded cells of one list of fields; used under the lock of `EncodedCells`."""

    def __init__(self) -> None:
        self.shared: tuple[Any, ...] = ()
        self.rows: dict[str, _Row] = {}

    def update(
        self, snapshot: Snapshot, rows: Sequence[Instance], encode: "_Encode"
    ) -> list[tuple[msgspec.Raw, ...]]:
        """Return the encoded runs of each row; keep those that are in the snapshot."""
        shared = tuple(snapshot.table(name) for name in _SHARED)
        known = self.rows if _are_same(shared, self.shared) else {}
        disk = snapshot.disks.get
        kept: dict[str, _Row] = {}
        for record in rows:
            disks = tuple(map(disk, record.disks))
            row = known.get(record.uuid)
            if (
                row is None
                or row.record is not record
                or not _are_same(row.disks, disks)
            ):
                row = _Row(record, disks, encode(record))
            kept[record.uuid] = row
        size = sum(len(memoryview(part)) for row in kept.values() for part in row.parts)
        self.shared, self.rows = shared, kept if size <= _MAX_BYTES else {}
        return [row.parts for row in kept.values()]


def _are_same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Return whether two tuples have the identical items."""
    return len(left) == len(right) and all(
        a is b for a, b in zip(left, right, strict=True)
    )


class _Encode:
    """Encodes the configuration cells of a row, one text per run."""

    def __init__(self, runs: Iterable[Sequence[Getter]]) -> None:
        self._runs = list(runs)

    def __call__(self, row: Instance) -> tuple[msgspec.Raw, ...]:
        """Return the values of each run: JSON, separated by commas."""
        return tuple(
            msgspec.Raw(_encoder.encode([get(row)[1] for get in run])[1:-1])
            for run in self._runs
        )


class EncodedCells:
    """A bounded store of encoded cells; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By resource and names of fields; the list that was used last comes last.
        self._lists: dict[tuple[str, tuple[str, ...]], _List] = {}

    def answer(
        self,
        resource: Resource,
        context: QueryContext,
        names: Sequence[str],
        rows: Sequence[Instance],
    ) -> list[list[Any]]:
        """Return the values of each row, ready for a JSON encoder.

        Args:
            resource: see `pays`.
            context: its live data are loaded.
            names: names of fields.
            rows: of the context's snapshot.

        Returns:
            A list per row. An item is a live value, or a ``msgspec.Raw`` with the
            values of several neighbouring fields, separated by commas, so that the
            encoded list has one value per field.
        """
        getters = [_getter(resource, context, name) for name in names]
        runs = list(_runs(resource, names))
        encode = _Encode(
            [getters[index] for index in run.indices] for run in runs if not run.is_live
        )
        with self._lock:
            # The next caller finds what this one encodes.
            key = (resource.name, tuple(names))
            cells = self._lists.pop(key) if key in self._lists else _List()
            self._lists[key] = cells
            while len(self._lists) > _MAX_LISTS:
                del self._lists[next(iter(self._lists))]
            encoded = cells.update(context.snapshot, rows, encode)
        live = [
            [getters[index] for index in run.indices] if run.is_live else None
            for run in runs
        ]
        return [
            _merge(row, live, parts) for row, parts in zip(rows, encoded, strict=True)
        ]


def pays(resource: Resource, names: Sequence[str]) -> bool:
    """Return whether encoded cells may be kept for a list of fields, and save time."""
    count = sum(not _is_live(resource.fields, name) for name in names)
    return resource.name in _RESOURCES and count >= _FEWEST_FIELDS


def _getter(resource: Resource, context: QueryContext, name: str) -> Getter:
    field = resource.fields.get(name)
    return _unknown if field is None else field.bind(context)


def _unknown(_row: Any) -> Any:
    return UNKNOWN


def _merge(
    row: Instance,
    live: Sequence[Sequence[Getter] | None],
    parts: Sequence[msgspec.Raw],
) -> list[Any]:
    """Return live values and encoded runs of a row in the order of the fields."""
    values: list[Any] = []
    encoded = iter(parts)
    for getters in live:
        if getters is None:
            values.append(next(encoded))
        else:
            values += [get(row)[1] for get in getters]
    return values


def _runs(resource: Resource, names: Sequence[str]) -> Iterator[_Run]:
    """Yield the longest runs of neighbouring fields that are all live, or all not."""
    start = 0
    for index in range(1, len(names) + 1):
        is_live = _is_live(resource.fields, names[start])
        if index == len(names) or _is_live(resource.fields, names[index]) != is_live:
            yield _Run(range(start, index), is_live)
            start = index


def _is_live(fields: Mapping[str, Any], name: str) -> bool:
    return name in fields and bool(fields[name].live)
