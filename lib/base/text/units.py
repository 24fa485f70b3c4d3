"""Sizes and durations in the forms that users write."""

import re
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, misc

_SIZE: Final = re.compile(r"([.0-9]+)\s*([a-z]*)")
_FACTORS: Final = {
    "": 1.0,
    "m": 1.0,
    "mb": 1.0,
    "mib": 1.0,
    "g": 1024.0,
    "gb": 1024.0,
    "gib": 1024.0,
    "t": 1024.0 * 1024,
    "tb": 1024.0 * 1024,
    "tib": 1024.0 * 1024,
}
#: Sizes are rounded up to this many MiB, as physical extents are.
_STEP: Final = 4
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
#: Digits of a number: it fits 64 bits.
_MOST_DIGITS: Final = 18
#: Larger sizes in MiB are hard to read.
_READABLE_MIB: Final = 10 * 1024


def parse_size_mib(text: str) -> int:
    """Return MiB for ``512``, ``2g`` or ``1.5T``, rounded up to a multiple of 4.

    Raises:
        UnitParseError: the text is not a number with a known unit.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    number, unit = match.groups() if match else ("", "")
    try:
        mib = float(number) * _FACTORS[unit]
        whole = int(mib) + (mib > int(mib))
    except (KeyError, OverflowError, ValueError) as err:
        raise errors.UnitParseError(
            f"wanted a size such as 512 or 2g, found {text!r:.100}"
        ) from err
    return -(-whole // _STEP) * _STEP


def format_size(mib: float, unit: str = "h") -> str:
    """Return a size as text.

    Args:
        mib: the size.
        unit: ``m``, ``g`` or ``t`` for a number in this unit without a letter, ``h``
            for the largest unit that fits, with its letter.
    """
    if unit == "m" or (unit == "h" and mib < 1024):
        return f"{round(mib):d}" + ("M" if unit == "h" else "")
    if unit == "g" or (unit == "h" and mib < 1024 * 1024):
        return f"{mib / 1024:0.1f}" + ("G" if unit == "h" else "")
    return f"{mib / 1024 / 1024:0.1f}" + ("T" if unit == "h" else "")


def exact_mib(mib: float) -> str:
    """Return a size for a message: in MiB, a large one in a larger unit as well."""
    exact = f"{mib:.10g} MiB"
    if abs(mib) < _READABLE_MIB:
        return exact
    scaled = format_size(abs(mib))
    return f"{exact} ({'-' if mib < 0 else ''}{scaled[:-1]} {scaled[-1]}iB)"


def format_duration(seconds: float) -> str:
    """Return a time span as text: ``12 s``, ``1:04 min``, ``1:02:03``."""
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    minutes, rest = divmod(whole % _HOUR_S, _MINUTE_S)
    hours = whole // _HOUR_S
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02} min"


def whole_number(text: str) -> int | None:
    """Return a number from 0 of at most 18 digits; None for any other text.

    Digits of other scripts count as other texts.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None


def integer(text: str) -> int | None:
    """Return a number with an optional sign, see `whole_number`."""
    number = whole_number(text.removeprefix("-") if text[:1] != "+" else text[1:])
    return -number if number is not None and text.startswith("-") else number


def parse_duration(text: str) -> int:
    """Parse a duration such as 90, 90s, 15m, 4h, 1d or 1w into seconds.

    Raises:
        OpPrereqError: the text is not a number with a known suffix, or too long a time.
    """
    factors = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    factor = factors.get(text[-1:])
    number = text if factor is None else text[:-1]
    seconds = whole_number(number)
    if seconds is None or seconds * (factor or 1) > misc.LONGEST_S:
        raise errors.OpPrereqError(
            "time: wanted a number with s, m, h, d or w, at most 100 years, found"
            f" {text!r:.100}",
            ecodes.ECODE_INVAL,
        )
    return seconds * (factor or 1)
