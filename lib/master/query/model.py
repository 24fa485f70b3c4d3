"""Definitions of fields and resources, and the context of one query."""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from ganeti.base import errors
from ganeti.base.constants import query
from ganeti.base.pathutils import Paths
from ganeti.base.text import nicesort
from ganeti.master import jqueue
from ganeti.master.locking import LockInfo
from ganeti.model.objects import Snapshot, lookup
from ganeti.protocols.rpc import Answer, Request
from ganeti.protocols.rpc.base import Runner
from ganeti.protocols.rpc.procedure import Result
from ganeti.store import CopyState

T = TypeVar("T")
V = TypeVar("V")

#: Status and value of one field of one row.
Cell = tuple[int, Any]
Getter = Callable[[Any], Cell]

UNKNOWN: Final[Cell] = (query.RS_UNKNOWN, None)
NODATA: Final[Cell] = (query.RS_NODATA, None)
UNAVAIL: Final[Cell] = (query.RS_UNAVAIL, None)
OFFLINE: Final[Cell] = (query.RS_OFFLINE, None)


def normal(value: Any) -> Cell:
    """Return the cell of a value."""
    return (query.RS_NORMAL, value)


def maybe(value: Any) -> Cell:
    """Return the cell of a value that may be missing."""
    return UNAVAIL if value is None else (query.RS_NORMAL, value)


class Jobs(Protocol):
    """The interface of the job queue for queries."""

    def job(self, job_id: int) -> "jqueue.Job | None":
        """Return a job, live or archived."""

    def jobs(self, *, with_logs: bool = True) -> Iterable["jqueue.Job"]:
        """Return the live jobs; their logs may be left out."""

    def ids(self) -> Sequence[int]:
        """Return the ids of the live jobs, sorted."""

    def archived_jobs(self) -> Iterable["jqueue.Job"]:
        """Return the archived jobs."""


@dataclasses.dataclass(frozen=True)
class ClusterFacts:
    """Data about the cluster besides its record.

    Attributes:
        drain_flag: whether the queue takes no jobs.
        watcher_pause: end of the watcher's pause, None if it is not paused.
        architecture: word size and machine type.
        vcs_version: identifies the build.
    """

    drain_flag: bool
    watcher_pause: float | None
    architecture: tuple[str, str]
    vcs_version: str


@dataclasses.dataclass(frozen=True)
class Sources:
    """Data sources of queries.

    Attributes:
        snapshot: the configuration.
        rpc: for live data; None answers live fields with "no data".
        jobs: for jobs; None where there is no queue.
        locks: returns the locks in use.
        cluster_facts: returns the data about the cluster besides its record.
        copies: returns the state of the other candidates' copies by node uuid.
        paths: paths of this node.
    """

    snapshot: Snapshot
    rpc: Runner | None = None
    jobs: Jobs | None = None
    locks: Callable[[], Sequence[LockInfo]] = list
    cluster_facts: Callable[[], ClusterFacts] | None = None
    copies: Callable[[], Mapping[str, CopyState]] = dict
    paths: Paths = dataclasses.field(default_factory=Paths)


class QueryContext:
    """Context of one query: its sources, live data, and values computed once."""

    def __init__(self, sources: Sources, asked: frozenset[str] = frozenset()) -> None:
        self.sources = sources
        #: Names of all fields that output and filter need.
        self.asked = asked
        self.snapshot = sources.snapshot
        #: Live data by name of the source; see the resources' ``fetch``.
        self.live: dict[str, Any] = {}
        self._cache: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of ``make`` at the first call with this key."""
        if key not in self._cache:
            self._cache[key] = make()
        return cast("T", self._cache[key])

    def call(
        self, nodes: Iterable[str], request: Request[V] | Callable[[str], Request[V]]
    ) -> Mapping[str, Answer[V]]:
        """Call nodes, given by uuid, once each; offline ones are skipped."""
        uuids = sorted(set(nodes))
        online = [uuid for uuid in uuids if not self.snapshot.nodes[uuid].offline]
        answers: dict[str, Answer[V]] = {
            uuid: Answer("", self.node_name(uuid), fail_msg="offline", offline=True)
            for uuid in uuids
        }
        rpc = self.sources.rpc
        if rpc is None:
            for uuid in online:
                answers[uuid] = Answer(
                    "", self.node_name(uuid), fail_msg="no connection to nodes"
                )
            return answers
        return answers | rpc.call_nodes(online, request)

    def node_name(self, uuid: str) -> str:
        """Return the name of a node, or the uuid of a removed one."""
        node = self.snapshot.nodes.get(uuid)
        return uuid if node is None else node.name


#: Computes the cells of all rows of an answer.
Column = Callable[[QueryContext, Sequence[Any]], Iterable[Cell]]


def shared_column(
    bind: Callable[[QueryContext], Getter], decider: Callable[[Any], Hashable]
) -> Column:
    """Return a function for a column in which many rows have the same cell.

    Args:
        bind: returns the getter for one query.
        decider: returns the key of a row; rows of the same key have the same cell.
            Called once per row for all columns that have it.
    """

    def column(context: QueryContext, rows: Sequence[Any]) -> Iterable[Cell]:
        keys = context.once(("keys of rows", decider), lambda: list(map(decider, rows)))
        first = context.once(
            ("rows by key", decider),
            lambda: dict(zip(reversed(keys), reversed(rows), strict=True)),
        )
        get = bind(context)
        cells = {key: get(row) for key, row in first.items()}
        if len(cells) == 1:
            return itertools.repeat(next(iter(cells.values())), len(rows))
        return map(cells.__getitem__, keys)

    return column


def sparse_column(
    bind: Callable[[QueryContext], Getter], count: Callable[[Any], int], index: int
) -> Column:
    """Return a function for a column of the parts with one index.

    Args:
        bind: returns the getter for one query; the getter returns "unavailable" for
            rows
            without such a part.
        count: returns the number of parts of a row; called once per row for all
            columns.
        index: index of the part.
    """

    def column(context: QueryContext, rows: Sequence[Any]) -> Iterable[Cell]:
        most = context.once(
            ("most parts", count), lambda: max(map(count, rows), default=0)
        )
        if index >= most:
            return itertools.repeat(UNAVAIL, len(rows))
        return map(bind(context), rows)

    return column


def failed_cell(result: Result | None) -> Cell:
    """Return the cell of live data that a node did not return."""
    return OFFLINE if result is not None and result.offline else NODATA


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field.

    Attributes:
        name: on the wire.
        title: column header.
        kind: see ``query.query`` QFT_*.
        doc: one line for users.
        bind: returns the getter for one query.
        live: name of the live data that it needs, empty for none.
        match: how filters compare it, see `ganeti.model.qlang.Leaf`.
        absent: what filters compare where it is unavailable; None lets every filter
            match there, as documented for Ganeti's fields.
        column: computes the cells of all rows of the answer at once, in their order,
            where that is cheaper than one by one.
    """

    name: str
    title: str
    kind: str
    doc: str
    bind: Callable[[QueryContext], Getter]
    live: str = ""
    match: str = ""
    absent: str | float | None = None
    column: Column | None = None


def plain(
    name: str,
    title: str,
    kind: str,
    doc: str,
    get: Callable[[Any], Any],
    *,
    match: str = "",
) -> Field:
    """Return a field whose value is a function of the row, always present."""
    return Field(
        name, title, kind, doc, lambda _ctx: lambda row: (0, get(row)), match=match
    )


def optional(
    name: str,
    title: str,
    kind: str,
    doc: str,
    get: Callable[[Any], Any],
    *,
    absent: str | float | None = None,
) -> Field:
    """Return a field that is unavailable if a function of the row returns None."""

    def bind(_context: QueryContext) -> Getter:
        return lambda row: maybe(get(row))

    return Field(name, title, kind, doc, bind, absent=absent)


def common(what: str) -> list[Field]:
    """Return the fields of every configuration object.

    Args:
        what: word for the object.
    """
    return [
        plain("ctime", "CTime", query.QFT_TIMESTAMP, "When created", lambda r: r.ctime),
        plain("mtime", "MTime", query.QFT_TIMESTAMP, "Last change", lambda r: r.mtime),
        plain(
            "serial_no",
            "SerialNo",
            query.QFT_NUMBER,
            f"Change counter of the {what}",
            lambda r: r.serial_no,
        ),
        plain("uuid", "UUID", query.QFT_TEXT, f"UUID of the {what}", lambda r: r.uuid),
        plain("tags", "Tags", query.QFT_OTHER, "Tags", lambda r: r.tags),
    ]


@dataclasses.dataclass(frozen=True)
class Resource:
    """One kind of object that can be queried.

    Attributes:
        name: on the wire.
        name_field: field with its name; requests for names select by it.
        fields: its fields by name.
        rows: returns all rows in natural order of names, or those of some names in
            their order; raises OpPrereqError for unknown ones.
        fetch: gets live data for the remaining rows, by name of the source.
        states: by name of the source, returns a value per row that decides its cells
            from that source, together with the record of the row, its disks and the
            tables of cluster, nodes, groups and networks.
    """

    name: str
    name_field: str
    fields: Mapping[str, Field]
    rows: Callable[[QueryContext, Sequence[Any] | None], Sequence[Any]]
    fetch: Mapping[str, Callable[[QueryContext, Sequence[Any]], Any]] = (
        dataclasses.field(default_factory=dict)
    )
    states: Mapping[str, Callable[[QueryContext, Sequence[Any]], Sequence[Any]]] = (
        dataclasses.field(default_factory=dict)
    )

    def getters(self, context: QueryContext, names: Iterable[str]) -> list[Getter]:
        """Return the getter of each field; that of an unknown one returns UNKNOWN."""
        fields = [self.fields.get(name) for name in names]
        return [unknown if field is None else field.bind(context) for field in fields]


def unknown(_row: Any) -> Cell:
    """Return UNKNOWN for any row."""
    return UNKNOWN


def by_name(*groups: Iterable[Field]) -> dict[str, Field]:
    """Return fields by name; refuse a name that occurs twice."""
    result: dict[str, Field] = {}
    for group in groups:
        for field in group:
            if field.name in result:
                raise errors.ProgrammerError(
                    f"query field {field.name} is defined twice"
                )
            result[field.name] = field
    return result


def _natural_order(record: Any) -> tuple[Any, ...]:
    """Return the key of a record; ``a1`` and ``a01`` differ in their names alone."""
    return nicesort.key(record.name), record.name, record.uuid


def rows_by_name(
    table: str,
) -> Callable[[QueryContext, Sequence[Any] | None], Sequence[Any]]:
    """Return a function that lists a table's records, all in natural order or by name.

    Args:
        table: of the snapshot, see `ganeti.model.objects.TABLES`.
    """
    kept: tuple[Any, Sequence[str]] = None, ()

    def rows(context: QueryContext, names: Sequence[Any] | None) -> Sequence[Any]:
        nonlocal kept
        records = context.snapshot.table(table)
        if names is None:
            by_name = context.snapshot.names(table)
            of_names, order = kept
            # Snapshots share the index of names until one of them changes; a record
            # without a name is not in it.
            if of_names is not by_name or len(by_name) != len(records):
                order = [
                    record.uuid
                    for record in sorted(records.values(), key=_natural_order)
                ]
                kept = by_name, order
            return [records[uuid] for uuid in order]
        expand = lookup.expand
        return [records[expand(context.snapshot, table, str(n))] for n in names]

    return rows
