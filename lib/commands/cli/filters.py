"""Objects that a list command shows: by names, globs or a filter in text form.

`ganeti.model.qlang` parses the text form; the master evaluates the list form.
"""

from typing import Any, Final

from ganeti.base.errors import refusal
from ganeti.base.text import units

#: A single argument with any of these is parsed as a filter.
_QLANG_FILTER_DETECTION_CHARS: Final = "\t\n\x0b\x0c\r !\"'()/<=>\\~"
_QLANG_GLOB_DETECTION_CHARS: Final = "*?"

Filter = list[Any]


def looks_like_filter(text: str) -> bool:
    """Return whether a single argument can only be a filter."""
    return any(char in text for char in _QLANG_FILTER_DETECTION_CHARS)


def is_glob(text: str) -> bool:
    """Return whether an argument is a name pattern."""
    return any(char in text for char in _QLANG_GLOB_DETECTION_CHARS)


def from_names(
    names: list[str], *, force_filter: bool, field: str, numeric: bool = False
) -> Filter | None:
    """Return the filter for the arguments of a list command, None for everything.

    Args:
        names: arguments.
        force_filter: treat the single argument as a filter (``-F``).
        field: the field that names are compared with.
        numeric: names are numbers.

    Raises:
        OpPrereqError: not exactly one argument with ``-F``, or a name is not a number.
        QueryFilterParseError: the filter is malformed.
    """
    if force_filter and len(names) != 1:
        raise refusal(f"-F needs exactly one filter, found {len(names)} arguments")
    if not names:
        return None
    if len(names) == 1 and (force_filter or looks_like_filter(names[0])):
        from ganeti.model.qlang import parser

        return parser.parse(names[0])
    return ["|", *(_name_filter(name, field, numeric=numeric) for name in names)]


def _name_filter(name: str, field: str, *, numeric: bool) -> Filter:
    if numeric:
        number = units.whole_number(name)
        if number is None:
            raise refusal(f"invalid {field}: wanted a number, found {name!r}")
        return ["==", field, number]
    if is_glob(name):
        from ganeti.model.qlang import parser

        return ["=~", field, parser.glob_regex(name)]
    return ["==", field, name]
