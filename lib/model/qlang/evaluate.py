"""Filters as functions of a row.

A filter is compiled once per query. Its result is true, false or None. None means "not
known yet", and only a skipped leaf returns it. A row is dropped only if its filter is
known to be false.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import query
from ganeti.base.text import patterns, units
from ganeti.model.qlang import parser

#: Returns whether a row matches; None if this is not known yet.
Predicate = Callable[[Any], bool | None]
Getter = Callable[[Any], tuple[int, Any]]
Resolve = Callable[[str], "Leaf"]


class Leaf(NamedTuple):
    """The access of a filter to a field.

    Attributes:
        name: the field's name, for messages.
        kind: one of the documented field kinds.
        get: returns status and value for a row.
        match: ``hostname`` also matches leading components of names, ``seconds``
            compares the first part of a time stamp, ``jobid`` accepts numbers as text.
        skip: the value is not available yet, so the leaf is neither true nor false.
    """

    name: str
    kind: str
    get: Getter
    match: str = ""
    skip: bool = False


_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    query.QLANG_OP_EQUAL: operator.eq,
    query.QLANG_OP_EQUAL_LEGACY: operator.eq,
    query.QLANG_OP_LT: operator.lt,
    query.QLANG_OP_LE: operator.le,
    query.QLANG_OP_GT: operator.gt,
    query.QLANG_OP_GE: operator.ge,
}
_EQUAL: Final = frozenset({query.QLANG_OP_EQUAL, query.QLANG_OP_EQUAL_LEGACY})
_NUMERIC: Final = frozenset(
    {query.QFT_NUMBER, query.QFT_NUMBER_FLOAT, query.QFT_UNIT, query.QFT_TIMESTAMP}
)


def compile_(qfilter: Any, resolve: Resolve) -> Predicate:
    """Return the function of a checked filter.

    Args:
        qfilter: None matches every row.
        resolve: returns the leaf for a field name; raises for unknown ones.

    Raises:
        ParameterError: a value does not fit the kind of its field. For fields whose
            kind does not define a type, the returned function raises it.
    """
    if qfilter is None:
        return lambda _row: True
    name = qfilter[0]
    if name == query.QLANG_OP_NOT:
        return _negate(compile_(qfilter[1], resolve))
    if name == query.QLANG_OP_OR and (field := _contained_in(qfilter)) is not None:
        leaf = resolve(field)
        return _leaf(leaf, _contains(leaf, [node[2] for node in qfilter[1:]]))
    if name in parser.LOGIC:
        parts = [compile_(node, resolve) for node in qfilter[1:]]
        return _all_of(parts) if name == query.QLANG_OP_AND else _any_of(parts)
    leaf = resolve(qfilter[1])
    if name == query.QLANG_OP_NOT_EQUAL:
        return _negate(_leaf(leaf, _comparison(leaf, query.QLANG_OP_EQUAL, qfilter[2])))
    return _leaf(leaf, _test(leaf, name, *qfilter[2:]))


def _negate(part: Predicate) -> Predicate:
    def run(row: Any) -> bool | None:
        value = part(row)
        return None if value is None else not value

    return run


def _all_of(parts: list[Predicate]) -> Predicate:
    def run(row: Any) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(row)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return run


def _any_of(parts: list[Predicate]) -> Predicate:
    def run(row: Any) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(row)
            if value:
                return True
            if value is None:
                result = None
        return result

    return run


def _leaf(leaf: Leaf, test: Callable[[Any], bool]) -> Predicate:
    """Apply a test to normal values; all others count as true."""
    if leaf.skip:
        return lambda _row: None
    get = leaf.get

    def run(row: Any) -> bool | None:
        status, value = get(row)
        return test(value) if status == query.RS_NORMAL else True

    return run


def _test(leaf: Leaf, name: str, *operands: Any) -> Callable[[Any], bool]:
    if name == query.QLANG_OP_TRUE:
        return _truth(leaf)
    if name == query.QLANG_OP_REGEXP:
        return _search(leaf, patterns.compile_(operands[0]))
    if name == query.QLANG_OP_CONTAINS:
        return _contains(leaf, operands)
    return _comparison(leaf, name, operands[0])


def _misfit(leaf: Leaf, wanted: str, value: Any) -> errors.ParameterError:
    return errors.ParameterError(
        f"filter: field {leaf.name} of kind {leaf.kind}: wanted {wanted}, found"
        f" {value!r:.200}"
    )


def _truth(leaf: Leaf) -> Callable[[Any], bool]:
    if leaf.kind not in {query.QFT_BOOL, query.QFT_OTHER}:
        raise _misfit(leaf, "a boolean field", leaf.kind)

    def test(value: Any) -> bool:
        if not isinstance(value, bool):
            raise _misfit(leaf, "a boolean value", value)
        return value

    return test


def _search(leaf: Leaf, pattern: patterns.Pattern) -> Callable[[Any], bool]:
    if leaf.kind not in {query.QFT_TEXT, query.QFT_OTHER}:
        raise _misfit(leaf, "a text field", leaf.kind)

    def test(value: Any) -> bool:
        if value is None:
            return False
        if not isinstance(value, str):
            raise _misfit(leaf, "a text value", value)
        return pattern.search(value)

    return test


def _contained_in(qfilter: Any) -> Any:
    """Return the list that a filter wants to contain any of its values; None if none.

    Such filters name many values, and getting the list can be dear.
    """
    nodes = qfilter[1:]
    if not nodes or any(node[0] != query.QLANG_OP_CONTAINS for node in nodes):
        return None
    field = nodes[0][1]
    return field if all(node[1] == field for node in nodes) else None


def _contains(leaf: Leaf, wanted: Sequence[Any]) -> Callable[[Any], bool]:
    """Return a test for lists that contain any of the wanted values."""
    if leaf.kind != query.QFT_OTHER:
        raise _misfit(leaf, "a list field", leaf.kind)

    def test(value: Any) -> bool:
        if value is None:
            return False
        if not isinstance(value, (list, tuple, dict)):
            raise _misfit(leaf, "a list", value)
        return any(each in value for each in wanted)

    return test


def _comparison(leaf: Leaf, name: str, wanted: Any) -> Callable[[Any], bool]:
    if leaf.match == "jobid" and isinstance(wanted, str):
        number = units.whole_number(wanted)
        wanted = wanted if number is None else number
    is_text = isinstance(wanted, str)
    if leaf.kind == query.QFT_BOOL or (leaf.kind == query.QFT_TEXT and not is_text):
        raise _misfit(
            leaf, "text" if leaf.kind == query.QFT_TEXT else "no value", wanted
        )
    if is_text and (leaf.kind in _NUMERIC or leaf.match == "seconds"):
        raise _misfit(leaf, "a number", wanted)
    compare = _COMPARE[name]
    if leaf.match == "hostname" and name in _EQUAL:
        prefix = f"{wanted}."
        return lambda value: value == wanted or value.startswith(prefix)
    if leaf.match == "seconds":
        return lambda value: value is not None and bool(compare(value[0], wanted))
    if leaf.kind == query.QFT_OTHER:
        return _loose_comparison(leaf, compare, wanted)
    # Some fields of a fixed kind may be null: a null value matches nothing.
    return lambda value: value is not None and bool(compare(value, wanted))


def _loose_comparison(
    leaf: Leaf, compare: Callable[[Any, Any], Any], wanted: Any
) -> Callable[[Any], bool]:
    types = (str,) if isinstance(wanted, str) else (int, float)

    def test(value: Any) -> bool:
        if value is None:
            return False
        if isinstance(value, bool) or not isinstance(value, types):
            raise _misfit(leaf, f"something like {value!r:.200}", wanted)
        return bool(compare(value, wanted))

    return test


def requested_names(qfilter: Any, name_field: str) -> list[Any] | None:
    """Return the names that a filter requests, in order and each once.

    Return None unless the filter consists of ``|`` and ``==`` on the name field only.
    Without names, the filter must be applied to every row.
    """
    if qfilter is None:
        return None
    names: dict[Any, None] = {}
    return list(names) if _collect_names(qfilter, name_field, names) else None


def _collect_names(node: Any, name_field: str, names: dict[Any, None]) -> bool:
    if node[0] == query.QLANG_OP_OR:
        return all(_collect_names(part, name_field, names) for part in node[1:])
    if node[0] in _EQUAL and node[1] == name_field:
        names[node[2]] = None
        return True
    return False
