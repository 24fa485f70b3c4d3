"""Pages of lists and answers of searches, as the remote API returns them.

Whoever may read a list may have its pages. Fields that the list does not show need the
right to query the kind of object, also in the order and in the filter of a page, which
reveal their values.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants import query as q
from ganeti.base.text import units
from ganeti.daemons.rapi.problems import Refused, bad_request, forbidden
from ganeti.decisions import search
from ganeti.decisions.pages import check_limit
from ganeti.model import qlang
from ganeti.protocols.rapi import model
from ganeti.protocols.rapi.row_parts import object_of

#: Characters of a filter, and fields of a page.
MAX_FILTER: Final = 10_000
MAX_FIELDS: Final = 200
_NAMES: Final = frozenset(each.name for each in model.PAGE)
#: Kind of objects -> path of their collection, for those that are found by a search.
_PATHS: Final = {
    "filter": "/2/filters",
    "group": "/2/groups",
    "instance": "/2/instances",
    "job": "/2/jobs",
    "network": "/2/networks",
    "node": "/2/nodes",
}
#: The same for those that have no path of their own.
_COMMON_PATHS: Final = {"cluster": "/2/info", "os": "/2/os"}

Ask = Callable[[str, Sequence[Any]], Any]
MayRead = Callable[[str], bool]


def are_wanted(args: Mapping[str, Any]) -> bool:
    """Return whether arguments of a list ask for a page."""
    return not _NAMES.isdisjoint(args)


def page_of(
    options: Mapping[str, Any], args: Mapping[str, Any], ask: Ask, may_read: MayRead
) -> dict[str, Any]:
    """Return a page of a list: ``items``, ``next`` and ``count``.

    Args:
        options: kind of the objects, and the fields that the list shows.
        args: of the request.
        ask: calls the master daemon.
        may_read: whether the user may read a path.

    Raises:
        Refused: 400 for wrong arguments, 403 for fields that the user may not read, 404
            for an unknown object in the filter.
    """
    kind, listed = options["kind"], options["fields"]
    fields = list(dict.fromkeys(args.get("fields") or listed))
    if len(fields) > MAX_FIELDS:
        raise bad_request(f"fields: wanted at most {MAX_FIELDS}, found {len(fields)}")
    qfilter, sort = _filter_of(args.get("filter")), args.get("sort", "")
    used = {*fields, sort.removeprefix("-"), *qlang.fields_of(qfilter)}
    others = used.difference(listed, {""})
    # A filter costs what it is: who has no right could keep the master daemon busy.
    may_query = may_read(f"/2/query/{kind}")
    if not others and qfilter is not None and not may_query:
        raise forbidden(f"filter: needs the right to read /2/query/{kind}")
    if others and not may_query:
        raise forbidden(
            f"{', '.join(sorted(others))[:200]}: not among the fields of this list, so"
            f" they need the right to read /2/query/{kind}"
        )
    wanted = {
        "sort": sort,
        "limit": _number(args, "limit", 100),
        "cursor": args.get("cursor", ""),
        "count": args.get("count", False),
    }
    with _refusals():
        answer = ask("QueryPage", [kind, fields, qfilter, wanted])
    unknown = [f["name"] for f in answer["fields"] if f["kind"] == q.QFT_UNKNOWN]
    if unknown:
        raise bad_request(f"fields: unknown: {', '.join(unknown)[:200]}")
    rows = ([value for _status, value in row] for row in answer["data"])
    return {
        "items": [object_of(fields, row) for row in rows],
        "next": answer["next"],
        "count": answer["count"],
    }


def matches(
    args: Mapping[str, Any], ask: Ask, may_read: MayRead
) -> list[dict[str, Any]]:
    """Return the objects that match a text, without those that the user may not read.

    Raises:
        Refused: 400 for wrong arguments.
    """
    limit = _number(args, "limit", 20)
    with _refusals():
        check_limit(limit, search.MAX_LIMIT)
        # All are asked for, as some may be left out.
        rows = ask("Search", [args["q"], search.MAX_LIMIT, args.get("kinds", [])])
    return [row for row in rows if may_read(_path_of(row))][:limit]


def _path_of(row: Mapping[str, Any]) -> str:
    kind = row["kind"]
    if kind in _COMMON_PATHS:
        return _COMMON_PATHS[kind]
    return f"{_PATHS[kind]}/{model.segment(row['name'])}"


def _filter_of(text: str | None) -> Any:
    if text is None:
        return None
    if len(text) > MAX_FILTER:
        raise bad_request(
            f"filter: wanted at most {MAX_FILTER} characters, found {len(text)}"
        )
    try:
        qfilter = qlang.parse(text)
        qlang.check(qfilter)
    except errors.ParseError as err:
        raise bad_request(f"{err.args[0]:.300}") from err
    except ValueError as err:  # of digits without end
        raise bad_request("filter: a number has too many digits") from err
    return qfilter


def _number(args: Mapping[str, Any], name: str, default: int) -> int:
    text = args.get(name)
    if text is None:
        return default
    number = units.whole_number(text)
    if number is None:
        raise bad_request(f"{name}: wanted a number, found {text!r:.60}")
    return number


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Refuse with 400 or 404 what the master daemon refuses of the arguments."""
    try:
        yield
    except errors.OpPrereqError as err:
        text, *codes = err.args
        if codes == [ecodes.ECODE_INVAL]:
            raise bad_request(str(text)) from err
        if codes == [ecodes.ECODE_NOENT]:
            raise Refused(HTTPStatus.NOT_FOUND, str(text)) from err
        raise
    except errors.ParameterError as err:
        raise bad_request(str(err)) from err
