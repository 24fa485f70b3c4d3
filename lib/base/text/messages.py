"""Texts for errors: the values that were expected in place of a wrong one."""

import collections
import difflib
import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Final, TypeVar

from msgspec import inspect

from ganeti.base.text import control_chars

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
_PATTERN: Final = re.compile("Expected `str` matching regex .*")
#: A step with the index as well.
_PART: Final = re.compile(r"\[([^\]]*)\]|([^.\[]+)")
#: Characters of a wrong text that an error shows.
_SHOWN_CHARS: Final = 80
_INVALID: Final = re.compile(r"Invalid enum value (.*)", re.DOTALL)
#: One step into a value: the name of a field, or nothing for an index in brackets.
_STEP: Final = re.compile(r"\[[^\]]*\]|([^.\[]+)")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


T = TypeVar("T", bound=Hashable)


def repeated(items: Iterable[T]) -> list[T]:
    """Return the values that occur more than once, in order, each once.

    Lists of users can have a hundred thousand: each is looked at once.
    """
    return [item for item, count in collections.Counter(items).items() if count > 1]


def alike(wanted: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that are similar to a word, the nearest first."""
    return difflib.get_close_matches(wanted, sorted(known), cutoff=_SIMILAR)


def similar_options(wanted: str, known: Iterable[str]) -> str:
    """Return a question about the long options similar to a wrong one, or nothing."""
    names = (name[2:] for name in known if name.startswith("--"))
    similar = [f"--{name}" for name in alike(wanted.removeprefix("--"), names)]
    return f" (did you mean {' or '.join(similar)}?)" if similar else ""


def known_names(wanted: str, known: Collection[str]) -> str:
    """Return suggestions: all names if they are few, and the similar ones."""
    if not known:
        return "there are none"
    similar = alike(wanted, known)
    if len(known) <= _FEW:
        question = f"; did you mean {similar[0]}?" if similar else ""
        return f"there are {', '.join(sorted(known))}{question}"
    if similar:
        return f"did you mean {' or '.join(similar)}?"
    return f"none of the {len(known)} known names is similar"


def places(count: int) -> str:
    """Return how many numbered things there are, and their first and last number."""
    if count <= 1:
        return "1: 0" if count else "none"
    return f"{count}: 0 to {count - 1}"


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


def misfit(text: str, kind: Any, value: Any = None) -> str:
    """Return a decoder's message about a wrong value in readable form.

    Args:
        text: the decoder's message.
        kind: annotation of the whole value.
        value: the whole value, of which a text of the wrong form is shown.
    """
    place = _PLACE.search(text)
    is_key = bool(place and place[1])
    path = place[2] if place else ""
    where = path.replace("[...]", "")
    problem = text[: place.start()] if place else text
    if match := _INVALID.fullmatch(problem):
        wording = _choice(
            _short(match[1]), _words_at(kind, path, is_key=is_key), is_key=is_key
        )
    elif _PATTERN.fullmatch(problem) and (form := _form_at(kind, path)):
        wording = f"wanted {form}{_shown(value, path)}"
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


def _short(text: str) -> str:
    """Return the beginning of a wrong word, as one line fit to be shown."""
    more = "..." if len(text) > _SHOWN_CHARS else ""
    return control_chars.escape(text[:_SHOWN_CHARS]) + more


def _form_at(kind: Any, path: str) -> str:
    """Return the description of the text at a place of the value, empty if none."""
    for hint in _hints_at(kind, path):
        for one in _metadata(hint):
            if text := (one.extra_json_schema or {}).get("description"):
                return str(text)
    return ""


def _metadata(kind: inspect.Type) -> list[inspect.Metadata]:
    if isinstance(kind, inspect.Metadata):
        return [kind, *_metadata(kind.type)]
    if isinstance(kind, inspect.UnionType):
        return [one for inner in kind.types for one in _metadata(inner)]
    return []


def _shown(value: Any, path: str) -> str:
    """Return the text at a place of the value as a part of a message."""
    for index, field in _PART.findall(path):
        try:
            value = value[field or int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            return ""
    if not isinstance(value, str):
        return ""
    return (
        f", found {value!r}"
        if len(value) <= _SHOWN_CHARS
        else f", found {value[:_SHOWN_CHARS]!r}..."
    )


def _words_at(kind: Any, path: str, *, is_key: bool) -> set[str]:
    """Return the words that an annotation allows at a place of the value."""
    kinds = [
        alternative
        for hint in _hints_at(kind, path)
        for alternative in _alternatives(hint)
    ]
    if is_key:
        keys = [one.key_type for one in kinds if isinstance(one, inspect.DictType)]
        kinds = [alternative for key in keys for alternative in _alternatives(key)]
    literals = [one for one in kinds if isinstance(one, inspect.LiteralType)]
    return {str(value) for one in literals for value in one.values}


def _hints_at(kind: Any, path: str) -> list[inspect.Type]:
    """Return the types that an annotation has at a place of the value."""
    hints = [inspect.type_info(kind)]
    for name in _STEP.findall(path):
        hints = [
            inner
            for hint in hints
            for parent in _alternatives(hint)
            for inner in _inner(parent, name)
        ]
    return hints


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
        return f"unknown parameter {_short(match[1])}"
    return problem


def _kinds(text: str) -> str:
    return " or ".join(_TYPES.get(word, word) for word in text.split(" | "))
