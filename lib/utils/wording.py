"""Words for people: what a value that does not fit should have been."""

import difflib
import re
from collections.abc import Collection
from typing import Final

#: More names than these are not listed in an error.
_FEW: Final = 12
#: Names of JSON types as the decoder says them.
_TYPES: Final = {
    "array": "a list",
    "bool": "yes or no",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "keys with values",
    "str": "a text",
}
_PLACE: Final = re.compile(r" - at (`key` in )?`\$\.?(.*)`$")
_EXPECTED: Final = re.compile(r"Expected `(.*)`, got `(.*)`")
_INVALID: Final = re.compile(r"Invalid enum value (.*)")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")


def known_names(wanted: str, known: Collection[str]) -> str:
    """Return what may have been meant: all names if they are few, else those alike."""
    if len(known) <= _FEW:
        return f"there are {', '.join(sorted(known))}"
    alike = difflib.get_close_matches(wanted, sorted(known), cutoff=0.6)
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    return f"none of the {len(known)} that there are is like it"


def misfit(text: str) -> str:
    """Return what the decoder says of a value that does not fit, for people."""
    place = _PLACE.search(text)
    is_key = bool(place and place[1])
    where = place[2].replace("[...]", "") if place else ""
    said = text[: place.start()] if place else text
    words = _reworded(said, is_key=is_key)
    return f"{where}: {words}" if where else words


def _reworded(said: str, *, is_key: bool) -> str:
    if match := _EXPECTED.fullmatch(said):
        return f"wanted {_kinds(match[1])}, found {_kinds(match[2])}"
    if match := _INVALID.fullmatch(said):
        return f"unknown {'key' if is_key else 'word'} {match[1]}"
    if match := _MISSING.fullmatch(said):
        return f"parameter {match[1]} is missing"
    if match := _UNKNOWN.fullmatch(said):
        return f"unknown parameter {match[1]}"
    return said


def _kinds(text: str) -> str:
    return " or ".join(_TYPES.get(word, word) for word in text.split(" | "))
