"""Search by a part of a name, tag, address or other short text, and its ranking.

The texts of an object are kept as one lower-case text, `line_of`. So a search looks at
one text per object, and at the single texts only of the objects that it returns.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ganeti.base.errors import refusal

#: Most objects of an answer, and most characters of a text that is searched.
MAX_LIMIT: Final = 200
MAX_TEXT: Final = 200
#: Kinds of objects, in the order in which equal matches are shown.
KINDS: Final = (
    *("cluster", "group", "node", "instance", "network", "os", "job", "filter"),
)
_PLACES: Final = {kind: place for place, kind in enumerate(KINDS)}
#: How a text matches, the best first: all of it, its beginning, any part.
MATCHES: Final = ("exact", "prefix", "part")
#: Between the texts of a line; no text has it.
_END: Final = "\n"


class Term(NamedTuple):
    """A text by which an object is found, and what it is of the object."""

    field: str
    value: str


class Candidate(NamedTuple):
    """An object that matches.

    Attributes:
        rank: see `rank_by`.
        kind: of the object, one of `KINDS`.
        name: its name, or what identifies it.
        record: the object.
    """

    rank: int
    kind: str
    name: str
    record: Any


class Match(NamedTuple):
    """An object that matches, and which of its texts does best."""

    kind: str
    name: str
    match: str
    field: str
    value: str


def check_text(text: str) -> str:
    """Return the text that is searched; refuse one that cannot be found.

    Raises:
        OpPrereqError: it is empty, too long, or has control characters.
    """
    wanted = text.strip().lower()
    if not 1 <= len(wanted) <= MAX_TEXT or not wanted.isprintable():
        raise refusal(
            f"search: wanted 1 to {MAX_TEXT} printable characters, found {text!r:.60}"
        )
    return wanted


def check_kinds(kinds: Iterable[str]) -> frozenset[str]:
    """Return the kinds that are searched, all if none is named.

    Raises:
        OpPrereqError: one is unknown.
    """
    wanted = frozenset(kinds) or frozenset(KINDS)
    for kind in wanted.difference(KINDS):
        raise refusal(f"search: wanted kinds of {', '.join(KINDS)}, found {kind!r:.60}")
    return wanted


def line_of(terms: Iterable[Term]) -> str:
    """Return the texts of an object as one, each with an end before and after it."""
    return _END + "".join([f"{term.value.lower()}{_END}" for term in terms])


def rank_by(text: str) -> Callable[[str], int]:
    """Return a function of a line with a text: how well it matches, 0 is best.

    The whole of a text is better than its beginning, which is better than another part
    of it. Of equal matches, that of the name is better; the first part of a host name
    counts as the whole of it.
    """
    start = f"{_END}{text}"
    whole = f"{start}{_END}"
    names = (whole, f"{start}.")

    def rank(line: str) -> int:
        if start not in line:
            return 4 if text in line[: line.index(_END, 1)] else 5
        if line.startswith(names):
            return 0
        if whole in line:
            return 1
        return 2 if line.startswith(start) else 3

    return rank


#: In place of the name before other terms.
_NO_NAME: Final = Term("", "")


def why(terms: Iterable[Term], text: str) -> tuple[str, Term]:
    """Return how the best term matches, and the term; one has to match."""
    rank = rank_by(text)
    place, _number, term = min(
        (rank(line_of([_NO_NAME, term] if number else [term])), number, term)
        for number, term in enumerate(terms)
        if text in term.value.lower()
    )
    return MATCHES[place // 2], term


def best(candidates: Iterable[Candidate], limit: int) -> list[Candidate]:
    """Return the best candidates, sorted: rank, length of the name, name, kind."""

    def key(candidate: Candidate) -> tuple[int, int, str, int]:
        place, kind, name, _record = candidate
        return place, len(name), name, _PLACES[kind]

    return heapq.nsmallest(limit, candidates, key)
