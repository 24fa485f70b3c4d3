"""Texts for errors: the values that were expected in place of a wrong one."""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from msgspec import inspect

#: More names than these are not listed in an error.
_FEW: Final = 12
#: Least similarity of a suggestion, see `difflib.SequenceMatcher.ratio`.
_SIMILAR: Final = 0.6
#: Readable names of the JSON types in the decoder's messages.
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
_LIMITED: Final = re.compile(r"Expected `(\w+)` (of length )?([<>]=) (\S+)")
_INVALID: Final = re.compile(r"Invalid enum value (.*)")
#: One step into a value: the name of a field, or nothing for an index in brackets.
_STEP: Final = re.compile(r"\[[^\]]*\]|([^.\[]+)")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")


def alike(wanted: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that are similar to a word, the nearest first."""
    return difflib.get_close_matches(wanted, sorted(known), cutoff=_SIMILAR)


def known_names(wanted: str, known: Collection[str]) -> str:
    """Return suggestions: all names if they are few, and the similar ones."""
    similar = alike(wanted, known)
    if len(known) <= _FEW:
        question = f"; did you mean {similar[0]}?" if similar else ""
        return f"there are {', '.join(sorted(known))}{question}"
    if similar:
        return f"did you mean {' or '.join(similar)}?"
    return f"none of the {len(known)} known names is similar"


def some(names: Iterable[str]) -> str:
    """Return sorted names; of very many, the first ones and the number of the rest."""
    ordered = sorted(names)
    more = len(ordered) - _FEW
    shown = ", ".join(ordered[:_FEW])
    return f"{shown} and {more} more" if more > 0 else shown


def choices(wanted: str, known: Sequence[str]) -> str:
    """Return quoted suggestions: all values if they are few, else the similar ones.

    If the values are many, the caller's message must name the place that lists them.
    """
    if len(known) <= _FEW:
        return f"choose from {', '.join(map(repr, known))}"
    similar = alike(wanted, known)
    if similar:
        return f"did you mean {' or '.join(map(repr, similar))}?"
    return f"none of the {len(known)} possible values is similar"


def misfit(text: str, kind: Any) -> str:
    """Return a decoder's message about a wrong value in readable form.

    Args:
        text: the decoder's message.
        kind: annotation of the whole value.
    """
    place = _PLACE.search(text)
    is_key = bool(place and place[1])
    path = place[2] if place else ""
    where = path.replace("[...]", "")
    problem = text[: place.start()] if place else text
    if match := _INVALID.fullmatch(problem):
        wording = _choice(match[1], _words_at(kind, path, is_key=is_key), is_key=is_key)
    else:
        wording = _reworded(problem)
    return f"{where}: {wording}" if where else wording


def _choice(given: str, known: set[str], *, is_key: bool) -> str:
    """Return the message about a value that is not one of the allowed words."""
    what = "unknown key" if is_key else "unknown value"
    if 0 < len(known) <= _FEW:
        wanted = f"wanted one of {', '.join(sorted(known))}"
        if not is_key:
            return f"{wanted}, found {given}"
        nearest = alike(given.strip(chr(39)), known)[:1]
        question = "".join(f" (did you mean {name}?)" for name in nearest)
        return f"{what} {given}{question}, {wanted}"
    more = f"; {known_names(given.strip(chr(39)), known)}" if known else ""
    return f"{what} {given}{more}"


def _words_at(kind: Any, path: str, *, is_key: bool) -> set[str]:
    """Return the words that an annotation allows at a place of the value."""
    kinds = _alternatives(inspect.type_info(kind))
    for name in _STEP.findall(path):
        kinds = [
            alternative
            for parent in kinds
            for inner in _inner(parent, name)
            for alternative in _alternatives(inner)
        ]
    if is_key:
        keys = [one.key_type for one in kinds if isinstance(one, inspect.DictType)]
        kinds = [alternative for key in keys for alternative in _alternatives(key)]
    literals = [one for one in kinds if isinstance(one, inspect.LiteralType)]
    return {str(value) for one in literals for value in one.values}


def _alternatives(kind: inspect.Type) -> list[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [inner for one in kind.types for inner in _alternatives(one)]
    return [kind]


def _inner(kind: inspect.Type, name: str) -> list[inspect.Type]:
    """Return the types inside a type: of a field, or of the items without a name."""
    match kind:
        case inspect.StructType() if name:
            return [one.type for one in kind.fields if one.encode_name == name]
        case inspect.DictType() if not name:
            return [kind.value_type]
        case inspect.TupleType() if not name:
            return list(kind.item_types)
        case inspect.CollectionType() if not name:
            return [kind.item_type]
    return []


def _reworded(problem: str) -> str:
    if match := _EXPECTED.fullmatch(problem):
        return f"wanted {_kinds(match[1])}, found {_kinds(match[2])}"
    if match := _LIMITED.fullmatch(problem):
        bound = "at least" if match[3] == ">=" else "at most"
        length = "length " if match[2] else ""
        return f"wanted {_kinds(match[1])} of {length}{bound} {match[4]}"
    if match := _MISSING.fullmatch(problem):
        return f"parameter {match[1]} is missing"
    if match := _UNKNOWN.fullmatch(problem):
        return f"unknown parameter {match[1]}"
    return problem


def _kinds(text: str) -> str:
    return " or ".join(_TYPES.get(word, word) for word in text.split(" | "))
