"""Job ids as arguments."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text import units


def parse_id(text: str) -> int:
    """Return a job id.

    Raises:
        OpPrereqError: not a number.
    """
    job_id = units.whole_number(text)
    if job_id is None:
        raise errors.OpPrereqError(
            f"job id: wanted a number, found {text!r}", ecodes.ECODE_INVAL
        )
    return job_id
