"""Natural order: ``node2`` before ``node10``."""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

_DIGITS = re.compile(r"(\d+)")


def key(text: str) -> list[Any]:
    """Return a sort key: alternating texts and numbers."""
    parts: list[Any] = _DIGITS.split(text)
    parts[1::2] = map(int, parts[1::2])
    return parts


def nice_sorted(items: Iterable[T], name: Callable[[T], str]) -> list[T]:
    """Return items sorted by name in natural order."""
    return sorted(items, key=lambda item: key(name(item)))


def nice_names(names: Iterable[str]) -> list[str]:
    """Return names in natural order."""
    return sorted(names, key=key)
