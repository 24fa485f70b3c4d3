"""The structure of filters."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import query as c
from ganeti.base.text import patterns

#: Operators on filters, on one field, and on a field and a value.
LOGIC: Final = frozenset({c.QLANG_OP_OR, c.QLANG_OP_AND})
COMPARISONS: Final = frozenset(
    {
        c.QLANG_OP_EQUAL,
        c.QLANG_OP_EQUAL_LEGACY,
        c.QLANG_OP_NOT_EQUAL,
        c.QLANG_OP_LT,
        c.QLANG_OP_LE,
        c.QLANG_OP_GT,
        c.QLANG_OP_GE,
    }
)
#: Deeper nesting is refused; filters written by people have a few levels.
MAX_DEPTH: Final = 100
#: Instructions of all regular expressions of a filter, and what each counts at least:
#: they bound the time per row and, with `patterns`, the memory.
MAX_PATTERNS_SIZE: Final = 10_000
_MIN_PATTERN_SIZE: Final = 40


def check(qfilter: Any, *, max_depth: int = MAX_DEPTH) -> None:
    """Check that a value is a filter; None is a filter.

    Raises:
        ParseError: the value is not a filter; the text names the wrong part.
    """
    if qfilter is not None:
        _check(qfilter, max_depth)


def _check(node: Any, depth: int) -> int:
    """Check a part of a filter; return the size of its regular expressions."""
    if depth <= 0:
        raise errors.ParseError("filter: nested too deeply")
    if not isinstance(node, (list, tuple)) or not node:
        raise errors.ParseError(f"filter: wanted [operator, ...], found {node!r:.200}")
    operator, operands = node[0], node[1:]
    if not isinstance(operator, str):
        raise errors.ParseError(f"filter: wanted an operator, found {operator!r:.200}")
    if operator in LOGIC:
        size = 0
        for operand in operands:
            size += _check(operand, depth - 1)
            if size > MAX_PATTERNS_SIZE:
                raise errors.ParseError("filter: too many regular expressions")
        return size
    if operator == c.QLANG_OP_NOT:
        _want(operator, operands, 1)
        return _check(operands[0], depth - 1)
    if operator == c.QLANG_OP_TRUE:
        _want(operator, operands, 1)
        _check_field(operator, operands[0])
    elif operator in COMPARISONS or operator in {
        c.QLANG_OP_REGEXP,
        c.QLANG_OP_CONTAINS,
    }:
        _want(operator, operands, 2)
        _check_field(operator, operands[0])
        return _check_value(operator, operands[1])
    else:
        raise errors.ParseError(f"filter: {operator!r:.200} is not an operator")
    return 0


def _want(operator: str, operands: Any, count: int) -> None:
    if len(operands) != count:
        raise errors.ParseError(
            f"filter: {operator!r:.200} wants {count} operands, found {len(operands)}"
        )


def _check_field(operator: str, field: Any) -> None:
    if not isinstance(field, str):
        raise errors.ParseError(
            f"filter: {operator!r:.200} needs a field name, found {field!r:.200}"
        )


def _check_value(operator: str, value: Any) -> int:
    if operator == c.QLANG_OP_REGEXP:
        if not isinstance(value, str):
            raise errors.ParseError(f"filter: wanted a pattern, found {value!r:.200}")
        try:
            return max(patterns.compile_(value).size, _MIN_PATTERN_SIZE)
        except errors.ParseError as err:
            raise errors.ParseError(f"filter: {err}") from err
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise errors.ParseError(
            f"filter: {operator!r:.200} needs a string or an integer, found"
            f" {value!r:.200}"
        )
    return 0


def fields_of(qfilter: Any) -> frozenset[str]:
    """Return the names of all fields in a checked filter."""
    if qfilter is None:
        return frozenset()
    if qfilter[0] in LOGIC or qfilter[0] == c.QLANG_OP_NOT:
        return frozenset().union(*(fields_of(node) for node in qfilter[1:]))
    return frozenset((qfilter[1],))
