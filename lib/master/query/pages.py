"""One page of a sorted list: only its rows get what has to be asked of nodes.

The sorted rows of a table of the configuration are kept between the answers of one
daemon, until a record changes. `ganeti.decisions.pages` has the order and the cursors.
"""

import bisect
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base.constants import query as constants
from ganeti.base.errors import refusal
from ganeti.base.text import messages
from ganeti.decisions import pages
from ganeti.master.query import engine, jobs
from ganeti.master.query.model import QueryContext, Resource, Sources
from ganeti.model import qlang
from ganeti.model.objects import TABLES, Snapshot

#: Most rows that are sorted by a field of which nodes know the values.
MAX_LIVE_SORT: Final = 5000
#: Orders that are kept; each has 8 bytes per row.
_MAX_ORDERS: Final = 8
#: Changed rows that are moved in a kept order; more rows are sorted as a whole.
_MAX_MOVED: Final = 500
#: Resources whose rows depend on the configuration alone, unless fields are live.
_KEPT: Final = frozenset(
    {
        constants.QR_GROUP,
        constants.QR_INSTANCE,
        constants.QR_NETWORK,
        constants.QR_NODE,
    }
)
#: Fields of such resources that depend on more.
_MOVING: Final = frozenset({"copy_lag", "copy_state"})
#: Tables on which values of each instance depend, beside its record and disks.
_SHARED: Final = ("cluster", "nodes", "nodegroups", "networks", "filters")
#: Fields that identify a row, where these are not name and UUID.
_IDENTITY: Final = {
    constants.QR_EXPORT: ("node", "export"),
    constants.QR_FILTER: ("watermark", "uuid"),
    constants.QR_JOB: ("id",),
}
#: Sorting field, where it is not that of the names.
_SORT: Final = {constants.QR_CLUSTER: "name", constants.QR_FILTER: "priority"}

PlaceOf = Callable[[Any], pages.Place]


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list.

    Attributes:
        sort: field, with ``-`` before it in descending order; empty for that of names.
        limit: most rows.
        cursor: of the page before; empty for the first page.
        count: whether to count all rows.
    """

    sort: str = ""
    limit: int = 100
    cursor: str = ""
    count: bool = False


class Page(NamedTuple):
    """A page of a list.

    Attributes:
        answer: its rows, as those of a query.
        next: cursor of the next page, None after the last one.
        total: number of the rows of all pages, None if nobody asked.
    """

    answer: engine.Answer
    next: str | None
    total: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form."""
        return {**self.answer.to_dict(), "next": self.next, "count": self.total}


class _Sorting:
    """How the rows of a resource are sorted."""

    def __init__(self, resource: Resource, text: str) -> None:
        name = resource.name
        default = _SORT.get(name, resource.name_field)
        self.order = pages.parse_sort(text or default)
        names = _IDENTITY.get(name, (resource.name_field, "uuid"))
        self._identity = [each for each in names if each in resource.fields]
        self._resource = resource
        self.field = resource.fields.get(self.order.field)
        if self.field is None:
            known = messages.known_names(self.order.field, resource.fields)
            raise refusal(f"sort: unknown field {self.order.field!r:.100}; {known}")
        if (
            self.field.kind == constants.QFT_OTHER
            and self.field.match != "seconds"
            and self.order.field not in {default, *self._identity}
        ):
            raise refusal(f"sort: the values of {self.order.field} have no order")

    def last_of(self, context: QueryContext) -> Callable[[Any], pages.Last]:
        """Return a function of a row, for its cursor."""
        names = [self.order.field, *self._identity]
        get, *others = self._resource.getters(context, names)
        return lambda row: pages.Last(get(row)[1], [each(row)[1] for each in others])

    def place_of(self, context: QueryContext) -> PlaceOf:
        """Return a function of a row, by which rows are sorted."""
        last = self.last_of(context)
        return lambda row: last(row).place


class _Kept(NamedTuple):
    """Sorted rows, and the snapshot that they are of."""

    snapshot: Snapshot
    rows: Sequence[Any]


class Orders:
    """Sorted rows of tables of the configuration; for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By resource and field; the rows that were used last come last.
        self._kept: dict[tuple[str, str], _Kept] = {}

    def rows(
        self, resource: Resource, context: QueryContext, field: str, place_of: PlaceOf
    ) -> Sequence[Any]:
        """Return all rows of a resource in ascending order of a field."""
        if resource.name not in _KEPT or field in _MOVING:
            return sorted(resource.rows(context, None), key=place_of)
        key = (resource.name, field)
        with self._lock:
            known = self._kept.pop(key, None)
            if known is None or not _are_same(known.snapshot, context.snapshot, TABLES):
                rows = _moved(known, resource, context, place_of)
                if rows is None:
                    rows = resource.rows(context, None)
                    if field != resource.name_field:
                        rows = sorted(rows, key=place_of)
                known = _Kept(context.snapshot, rows)
            self._kept[key] = known
            while len(self._kept) > _MAX_ORDERS:
                del self._kept[next(iter(self._kept))]
            return known.rows


def _are_same(one: Snapshot, other: Snapshot, tables: Iterable[str]) -> bool:
    return all(one.table(name) is other.table(name) for name in tables)


def _moved(
    known: _Kept | None, resource: Resource, context: QueryContext, place_of: PlaceOf
) -> Sequence[Any] | None:
    """Return known rows of instances with only those that changed at other places.

    Returns:
        None if too much has changed.
    """
    if (
        known is None
        or resource.name != constants.QR_INSTANCE
        or not _are_same(known.snapshot, context.snapshot, _SHARED)
    ):
        return None
    changed = context.snapshot.changed_instances(known.snapshot)
    if changed is None or len(changed) > _MAX_MOVED:
        return None
    rows = [row for row in known.rows if row.uuid not in changed]
    for uuid in changed:
        bisect.insort(rows, context.snapshot.instances[uuid], key=place_of)
    return rows


def page(
    sources: Sources,
    what: str,
    names: Sequence[str],
    qfilter: Any,
    wanted: Wanted,
    *,
    orders: Orders,
) -> Page:
    """Return a page of the rows that `ganeti.master.query.query` has; may take long.

    Args:
        sources: data of the answer.
        what: resource.
        names: names of fields; unknown ones give cells of that status.
        qfilter: None or a checked filter.
        wanted: the page.
        orders: rows that are sorted already.

    Raises:
        ParameterError: the filter does not fit the fields.
        OpPrereqError: unknown_entity, a requested name does not exist; wrong_input,
            limit, sort or cursor.
    """
    pages.check_limit(wanted.limit)
    resource = engine.resource_of(what)
    sorting = _Sorting(resource, wanted.sort)
    order = sorting.order
    scope = [what, *order, qfilter]
    after = pages.parse_cursor(scope, wanted.cursor).place if wanted.cursor else None
    asked = {order.field, *names, *qlang.fields_of(qfilter)}
    context = QueryContext(sources, frozenset(asked))
    rows: Sequence[Any]
    fits: qlang.Predicate
    is_by_id = _is_by_id(resource, context, qfilter, order.field)
    if is_by_id:
        rows, fits = jobs.rows_without_jobs(context), _any
    else:
        rows, fits = _candidates(resource, context, qfilter, sorting, orders)
    if wanted.count and qfilter is not None:
        rows, fits = [row for row in rows if fits(row)], _any
    place_of = sorting.place_of(context)
    indexes = pages.following(
        len(rows), lambda i: place_of(rows[i]), after, reverse=order.descending
    )
    chosen, has_more = pages.take((rows[i] for i in indexes), fits, wanted.limit)
    following = None
    if has_more:
        following = pages.cursor_of(scope, sorting.last_of(context)(chosen[-1]))
    if is_by_id:
        chosen = jobs.with_jobs(context, chosen)
    return Page(
        _answer(resource, context, names, chosen),
        following,
        len(rows) if wanted.count else None,
    )


def _any(_row: Any) -> bool:
    return True


def _is_by_id(
    resource: Resource, context: QueryContext, qfilter: Any, field: str
) -> bool:
    """Return whether jobs that are not on the page need not be read."""
    is_plain = resource is jobs.JOB and qfilter is None and field == "id"
    return is_plain and "archived" not in context.asked


def _candidates(
    resource: Resource,
    context: QueryContext,
    qfilter: Any,
    sorting: _Sorting,
    orders: Orders,
) -> tuple[Sequence[Any], qlang.Predicate]:
    """Return sorted rows, and which of them are of the list."""
    field = sorting.order.field
    fits = engine.predicate(resource, context, qfilter, live=False)
    is_live = engine.live_needs(resource, {field, *qlang.fields_of(qfilter)})
    requested = qlang.requested_names(qfilter, resource.name_field)
    if requested is None and not is_live:
        place_of = sorting.place_of(context)
        return orders.rows(resource, context, field, place_of), fits
    rows = [row for row in resource.rows(context, requested) if fits(row) is not False]
    if resource.fields[field].live and len(rows) > MAX_LIVE_SORT:
        raise refusal(
            f"sort: {field} is known by nodes alone, and can sort at most"
            f" {MAX_LIVE_SORT} objects, found {len(rows)}; add a filter"
        )
    rows = list(engine.load(resource, context, rows, [field], qfilter))
    return sorted(rows, key=sorting.place_of(context)), _any


def _answer(
    resource: Resource, context: QueryContext, names: Sequence[str], rows: Sequence[Any]
) -> engine.Answer:
    """Return the cells of the rows of a page, with what only nodes know."""
    for need in sorted(engine.live_needs(resource, names) - context.live.keys()):
        context.live[need] = resource.fetch[need](context, rows)
    return engine.Answer(
        [engine.definition(resource, name) for name in names],
        engine.cells(resource, context, names, rows),
    )
