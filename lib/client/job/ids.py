"""Job ids as arguments."""

from ganeti import errors
from ganeti.constants import ecodes


def parse_id(text: str) -> int:
    """Return a job id.

    Raises:
        OpPrereqError: not a number.
    """
    if not text.isdigit():
        raise errors.OpPrereqError(
            f"job id: wanted a number, found {text!r}", ecodes.ECODE_INVAL
        )
    return int(text)
