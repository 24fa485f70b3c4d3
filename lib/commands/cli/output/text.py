"""Small text helpers of the command line."""

import time
from typing import Any


def timestamp(value: Any, *, micro: bool = False) -> str:
    """Return seconds or ``[seconds, microseconds]`` as local time, others as ``N/A``.

    A time beyond all dates of the platform is shown in seconds.

    Args:
        value: a time in wire form.
        micro: show microseconds.
    """
    if isinstance(value, (list, tuple)) and len(value) == 2:
        seconds, fraction = value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds, fraction = int(value), round((value - int(value)) * 1_000_000)
    else:
        return "N/A"
    try:
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OSError, OverflowError, ValueError):
        return f"{seconds} s"
    return f"{text}.{fraction:06d}" if micro else text


def plural(count: int, noun: str) -> str:
    """Return ``1 job`` or ``2 jobs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
