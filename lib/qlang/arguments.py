"""Filters from the words of a list command: names, globs or one filter text."""

from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import query as c
from ganeti.qlang.globs import glob_regex
from ganeti.qlang.parser import parse


def is_filter_text(word: str) -> bool:
    """Tell whether a single word of a command is meant as a filter."""
    return any(char in c.QLANG_FILTER_DETECTION_CHARS for char in word)


def is_glob(word: str) -> bool:
    """Tell whether a word is a glob."""
    return any(char in c.QLANG_GLOB_DETECTION_CHARS for char in word)


def from_arguments(
    words: Sequence[str],
    *,
    force_filter: bool = False,
    name_field: str = "name",
    is_number: bool = False,
) -> list[Any] | None:
    """Return the filter that the words of a list command ask for.

    Args:
        words: none asks for everything.
        force_filter: the one word is a filter text whatever it looks like.
        name_field: field that names are compared with.
        is_number: names are numbers (job ids).

    Raises:
        QueryFilterParseError: the text form is wrong.
        OpPrereqError: a filter was forced with no or several words, or a number is
            none.
    """
    if force_filter and len(words) != 1:
        raise errors.OpPrereqError(
            f"wanted exactly one filter, found {len(words)} arguments", "wrong_input"
        )
    if len(words) == 1 and (force_filter or is_filter_text(words[0])):
        return parse(words[0])
    if not words:
        return None
    return [
        c.QLANG_OP_OR,
        *(_condition(word, name_field, is_number=is_number) for word in words),
    ]


def _condition(word: str, name_field: str, *, is_number: bool) -> list[Any]:
    if is_number:
        try:
            return [c.QLANG_OP_EQUAL, name_field, int(word)]
        except ValueError as err:
            raise errors.OpPrereqError(
                f"wanted a number, found {word!r}", "wrong_input"
            ) from err
    if is_glob(word):
        return [c.QLANG_OP_REGEXP, name_field, glob_regex(word)]
    return [c.QLANG_OP_EQUAL, name_field, word]
