"""Durations as arguments."""

from ganeti import errors
from ganeti.constants import ecodes


def parse_duration(text: str) -> int:
    """Return the seconds of 90, 90s, 15m, 4h, 1d or 1w.

    Raises:
        OpPrereqError: not a number with a known suffix.
    """
    factors = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    factor = factors.get(text[-1:])
    number = text if factor is None else text[:-1]
    if not number.isdigit():
        raise errors.OpPrereqError(
            f"time: wanted a number with s, m, h, d or w, found {text!r}",
            ecodes.ECODE_INVAL,
        )
    return int(number) * (factor or 1)
