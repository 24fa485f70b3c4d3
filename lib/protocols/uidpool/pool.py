"""The cluster's user-id pool: a sorted list of ranges of user ids. Pure."""

from collections.abc import Iterable, Sequence

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants import uidpool as limits

#: Ranges that include both bounds; a single id has equal bounds.
Pool = list[tuple[int, int]]


def ParseUidPool(value: str, separator: str | None = None) -> Pool:
    """Return the sorted ranges of a text such as ``8000-8019,9100``.

    Args:
        value: the text; empty elements are skipped.
        separator: separator of ranges, by default a comma; ssconf has newlines.

    Raises:
        OpPrereqError: an element is neither an id nor a range, or is out of bounds.
    """
    elements = value.split("," if separator is None else separator)
    pool = sorted(_parse_range(text) for text in elements if text.strip())
    check(pool)
    return pool


def _parse_range(text: str) -> tuple[int, int]:
    bounds = text.strip().split("-")
    try:
        if len(bounds) == 1:
            return int(bounds[0]), int(bounds[0])
        lower, higher = bounds
        return int(lower), int(higher)
    except ValueError:
        raise errors.OpPrereqError(
            f"user-id pool: wanted ID or LOWER-HIGHER, found {text.strip()!r}",
            ecodes.ECODE_INVAL,
        ) from None


def check(pool: Iterable[Sequence[int]]) -> None:
    """Refuse ranges with swapped bounds or out of bounds.

    Raises:
        OpPrereqError: names the range.
    """
    for lower, higher in pool:
        if lower > higher:
            raise errors.OpPrereqError(
                f"user-id pool: lower bound {lower} above higher bound {higher}",
                ecodes.ECODE_INVAL,
            )
        if lower < limits.UIDPOOL_UID_MIN or higher > limits.UIDPOOL_UID_MAX:
            raise errors.OpPrereqError(
                f"user-id pool: {lower}-{higher} is not within"
                f" {limits.UIDPOOL_UID_MIN}-{limits.UIDPOOL_UID_MAX}",
                ecodes.ECODE_INVAL,
            )


def check_overlaps(
    pool: Sequence[tuple[int, int]], present: Iterable[Sequence[int]] = ()
) -> None:
    """Refuse sorted ranges with common uids, which are mistakes in most cases.

    Those that are in the cluster already stay: Ganeti permits them, and clusters that
    were taken over may have some.

    Raises:
        OpPrereqError: names both ranges.
    """
    known = {(low, high) for low, high in present}
    for number, (low, high) in enumerate(pool):
        for later in pool[number + 1 :]:
            if later[0] <= high and not {(low, high), later} <= known:
                raise errors.OpPrereqError(
                    f"uid pool: ranges {low}-{high} and {later[0]}-{later[1]} overlap",
                    ecodes.ECODE_INVAL,
                )


def format_pool(pool: Iterable[Sequence[int]], separator: str = ", ") -> str:
    """Return the text of a pool, which `ParseUidPool` reads again."""
    return separator.join(
        str(lower) if lower == higher else f"{lower}-{higher}" for lower, higher in pool
    )


def add_ranges(pool: Iterable[Sequence[int]], ranges: Iterable[Sequence[int]]) -> Pool:
    """Return a pool with further ranges; ranges that are equal are not added twice."""
    result = {(lower, higher) for pair in (pool, ranges) for lower, higher in pair}
    return sorted(result)


def remove_ranges(
    pool: Iterable[Sequence[int]], ranges: Iterable[Sequence[int]]
) -> Pool:
    """Return a pool without some ranges.

    Raises:
        OpPrereqError: the pool does not have exactly this range.
    """
    result = [(lower, higher) for lower, higher in pool]
    for lower, higher in ranges:
        if (lower, higher) not in result:
            raise errors.OpPrereqError(
                f"user-id pool: {format_pool([(lower, higher)])} is not in"
                f" {format_pool(result) or 'the empty pool'}",
                ecodes.ECODE_NOENT,
            )
        result.remove((lower, higher))
    return sorted(result)


def ExpandUidPool(uid_pool: Iterable[Sequence[int]]) -> set[int]:
    """Return all ids of a pool."""
    return {uid for lower, higher in uid_pool for uid in range(lower, higher + 1)}
