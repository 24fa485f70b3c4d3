"""Integers of info trees as Roman numerals (``--roman``)."""

import re
from collections.abc import Mapping
from typing import Any, Final

from ganeti.commands.cli.output import info_tree

_VALUES: Final = (
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
_DEFAULT: Final = re.compile(r"default \((\d{1,4})\)")


def numeral(number: int) -> str:
    """Return the numeral of a number, or its digits if there is no numeral."""
    if not 0 <= number <= _LARGEST:
        return str(number)
    if number == 0:
        return _ZERO
    text = ""
    for value, letters in _VALUES:
        count, number = divmod(number, value)
        text += letters * count
    return text


def convert(value: Any) -> Any:
    """Return a tree with numerals instead of integers."""
    if isinstance(value, info_tree.Pairs):
        return info_tree.Pairs((pair[0], convert(pair[1]), *pair[2:]) for pair in value)
    if isinstance(value, Mapping):
        return {key: convert(item) for key, item in value.items()}
    if isinstance(value, list):
        return [convert(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return numeral(value)
    if isinstance(value, str) and (match := _DEFAULT.fullmatch(value)):
        return f"default ({numeral(int(match[1]))})"
    return value
