"""Option values: from text to the opcode's types.

A text that is not a value of its type raises `BadValueError`, a usage error. A
malformed parameter list raises ParameterError, as documented. The master checks the
parameters themselves.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.text import units

_COMMA: Final = re.compile(r"((?:[^\\,]|\\.)*)(?:,|$)", re.DOTALL)
_TRUE: Final = ("true", "yes")
_FALSE: Final = ("false", "no")
_WORD_DEFAULT: Final = "default"


class BadValueError(Exception):
    """The text is not a value of the expected type."""


def split_commas(text: str) -> list[str]:
    r"""Split text at commas; ``\,`` is a comma and ``\\`` a backslash."""
    if not text:
        return []
    parts: list[str] = []
    position = 0
    while position <= len(text):
        match = _COMMA.match(text, position)
        if match is None:  # a lone backslash at the end
            parts.append(text[position:])
            break
        parts.append(re.sub(r"\\(.)", r"\1", match.group(1)))
        if match.end() == len(text) and not text[position:].endswith(","):
            break
        position = match.end()
        if position == len(text):
            parts.append("")
            break
    return parts


def parse_bool(text: str) -> bool:
    """Parse yes, no, true or false.

    Raises:
        TypeEnforcementError: any other text.
    """
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise errors.TypeEnforcementError(f"wanted yes or no, found '{text}'")


def parse_keyval(text: str, *, prefixes: bool = True) -> dict[str, Any]:
    """Return the mapping of ``k=v,...``.

    Args:
        text: empty gives an empty mapping.
        prefixes: ``k`` alone is true, ``no_k`` false and ``-k`` null.

    Raises:
        ParameterError: a repeated key, or a missing value without prefixes.
    """
    parsed: dict[str, Any] = {}
    for part in split_commas(text):
        key, value = _key_and_value(part, prefixes=prefixes)
        if key in parsed:
            raise errors.ParameterError(f"duplicate key '{key}' in '{text}'")
        parsed[key] = value
    return parsed


class PrivateFile(NamedTuple):
    """The name of a file with private parameters; ``-`` is standard input."""

    path: str


def parse_private(text: str) -> dict[str, Any] | PrivateFile:
    """Parse private parameters ``k=v,...``, or the file name of ``@FILE``.

    Raises:
        ParameterError: as for `parse_keyval`; the error does not show the text.
    """
    if text.startswith("@"):
        return PrivateFile(text[1:])
    try:
        return parse_keyval(text)
    except errors.ParameterError:
        raise errors.ParameterError("a key is given twice (values not shown)") from None


def _key_and_value(part: str, *, prefixes: bool) -> tuple[str, Any]:
    key, equals, value = part.partition("=")
    if equals:
        return key, value
    if not prefixes:
        raise errors.ParameterError(f"missing value for key '{part}'")
    if part.startswith("no_"):
        return part[3:], False
    if part.startswith("-"):
        return part[1:], None
    return part, True


def parse_ident_keyval(text: str) -> tuple[str, Any]:
    """Parse ``IDENT[:k=v,...]`` into identifier and mapping.

    ``no_IDENT`` gives False and ``-IDENT`` None instead of a mapping, except that a
    minus sign before a digit begins a number.

    Raises:
        ParameterError: parameters after ``no_IDENT`` or ``-IDENT``.
    """
    ident, colon, rest = text.partition(":")
    for prefix, value in (("no_", False), ("-", None)):
        is_number = prefix == "-" and ident[1:2].isdigit()
        if ident.startswith(prefix) and not is_number:
            if rest:
                raise errors.ParameterError(
                    f"cannot pass options when removing parameters: {text}"
                )
            return ident[len(prefix) :], value
    return ident, parse_keyval(rest) if colon else {}


def parse_multi_specs(text: str) -> list[dict[str, dict[str, str]]]:
    """Parse alternatives joined by ``//``, of sections ``IDENT:k=v,...`` joined by /.

    Raises:
        ParameterError: an empty section, a repeated identifier, a key without value.
    """
    alternatives = []
    for alternative in text.split("//"):
        sections: dict[str, dict[str, str]] = {}
        for section in alternative.split("/"):
            ident, _, rest = section.partition(":")
            if not ident or not rest:
                raise errors.ParameterError(f"wrong or empty section '{section}'")
            if ident in sections:
                raise errors.ParameterError(f"duplicate identifier '{ident}'")
            sections[ident] = parse_keyval(rest, prefixes=False)
        alternatives.append(sections)
    return alternatives


def parse_size(text: str) -> int:
    """Return MiB; see `ganeti.base.text.units`."""
    try:
        return units.parse_size_mib(text)
    except errors.UnitParseError as err:
        raise BadValueError(str(err)) from err


def _parse_int(text: str) -> int:
    number = units.integer(text.strip())
    if number is None:
        raise BadValueError(f"invalid integer value: {text!r}")
    return number


def finite(value: Any) -> float:
    """Return a number; JSON has no infinity or NaN to send to the master.

    Raises:
        ValueError: the value is no such number.
    """
    try:
        number = float(value)
    except OverflowError as err:
        raise ValueError("found a number of too many digits") from err
    if not math.isfinite(number):
        raise ValueError(f"found {number}")
    return number


def _parse_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError as err:
        raise BadValueError(f"invalid floating-point value: {text!r}") from err
    if not math.isfinite(number):
        raise BadValueError(f"wanted a finite number, found {text!r}")
    return number


def _parse_maybe_float(text: str) -> float | str:
    if text.lower() == _WORD_DEFAULT:
        return _WORD_DEFAULT
    return _parse_float(text)


def _parse_json(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError as err:
        raise BadValueError(f"invalid JSON value: {err}") from err


def _parse_filter_action(text: str) -> str | list[Any]:
    word, _, number = text.partition(" ")
    if word == "RATE_LIMIT":
        return [word, _parse_int(number)]
    return text


PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "string": str,
    "choice": str,
    "int": _parse_int,
    "float": _parse_float,
    "bool": parse_bool,
    "unit": parse_size,
    "list": split_commas,
    "keyval": parse_keyval,
    # The master hides private values; a command holds them as plain text.
    "keyprivateval": parse_private,
    "identkeyval": parse_ident_keyval,
    "multilistidentkeyval": parse_multi_specs,
    "maybefloat": _parse_maybe_float,
    "json": _parse_json,
    "filteraction": _parse_filter_action,
}
