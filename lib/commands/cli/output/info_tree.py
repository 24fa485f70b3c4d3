"""Info trees: nested keys and values as text that YAML parsers accept.

Mappings are printed with their keys sorted. `Pairs` keep their order; a pair may name
an alignment group, whose values start in one column. Tuples of plain values are
printed inline. `with_numerals` is for ``--roman``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final


class Pairs(list[Any]):
    """Ordered ``(key, value)`` or ``(key, value, alignment group)``."""


def render(value: Any) -> str:
    """Return the tree as lines without final newline."""
    return "\n".join(_block(value))


def _block(value: Any) -> Iterator[str]:
    """Yield the lines of a value that starts on a line of its own."""
    if isinstance(value, Mapping):
        yield from _pairs([(key, value[key]) for key in sorted(value, key=str)])
    elif isinstance(value, Pairs):
        yield from _pairs(value)
    elif isinstance(value, list):
        for item in value:
            lines = list(_block(item))
            yield f"- {lines[0]}" if lines else "- "
            yield from (f"  {line}" for line in lines[1:])
    else:
        yield _plain(value)


def _pairs(pairs: list[Any]) -> Iterator[str]:
    widths: dict[Any, int] = {}
    for pair in pairs:
        if len(pair) > 2:
            widths[pair[2]] = max(widths.get(pair[2], 0), len(str(pair[0])))
    for pair in pairs:
        key, value = str(pair[0]), pair[1]
        if isinstance(value, (Mapping, list)):
            yield f"{key}: "
            yield from (f"  {line}" for line in _block(value))
            continue
        blanks = " " * (widths[pair[2]] - len(key)) if len(pair) > 2 else ""
        yield f"{key}: {blanks}{_plain(value)}"


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_plain(item) for item in value)}]"
    return str(value)


def to_json(value: Any) -> Any:
    """Return the tree as plain JSON values; keys become ``snake_case``."""
    if isinstance(value, Pairs):
        return {_json_key(pair[0]): to_json(pair[1]) for pair in value}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def _json_key(key: Any) -> str:
    return str(key).strip().lower().replace(" ", "_").replace("-", "_")


def with_defaults(filled: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters; inherited values are shown as ``default (X)``."""
    return {name: own.get(name, f"default ({value})") for name, value in filled.items()}


_NUMERALS: Final = (
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)
#: Nulla, as mediaeval computists wrote it.
_ZERO: Final = "N"
#: Larger numbers have no numeral.
_LARGEST: Final = 4999
#: An inherited value.
_INHERITED: Final = re.compile(r"default \((\d{1,4})\)")


def numeral(number: int) -> str:
    """Return the numeral of a number, or its digits if there is no numeral."""
    if not 0 <= number <= _LARGEST:
        return str(number)
    if number == 0:
        return _ZERO
    text = ""
    for value, letters in _NUMERALS:
        count, number = divmod(number, value)
        text += letters * count
    return text


def with_numerals(value: Any) -> Any:
    """Return a tree with numerals instead of integers."""
    if isinstance(value, Pairs):
        return Pairs((pair[0], with_numerals(pair[1]), *pair[2:]) for pair in value)
    if isinstance(value, Mapping):
        return {key: with_numerals(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_numerals(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return numeral(value)
    if isinstance(value, str) and (match := _INHERITED.fullmatch(value)):
        return f"default ({numeral(int(match[1]))})"
    return value
