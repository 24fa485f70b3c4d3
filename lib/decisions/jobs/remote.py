"""Jobs that the remote API submits: their share of the queue and of the workers.

Their opcodes have a reason of the source `SOURCE`, which the master daemon demands on
the socket of the remote API; it is stored with the job. So places in the queue and
workers remain for administrators on the master, whatever users of the remote API do.
"""

import collections
from collections.abc import Iterable
from typing import Final

from ganeti.base import errors

#: Source of the reason that says who asked the remote API for a job.
SOURCE: Final = "gnt:daemon:rapi"
_ANONYMOUS: Final = "user anonymous"
#: Parts of the queue: for all users of the remote API, and for one of them.
_ALL: Final = 0.8
_ONE: Final = 0.2
#: Unfinished jobs of an address that sends no credentials.
_MAX_ANONYMOUS: Final = 100
#: Bytes of the opcodes in unfinished jobs of one user.
_MAX_BYTES: Final = 64 << 20
#: Part of the workers that is kept for others.
_KEPT: Final = 0.2

#: Source, text, nanoseconds.
Reason = tuple[str, str, int]


def requester(reasons: Iterable[Reason]) -> str:
    """Return who asked the remote API for a job; empty if it came from elsewhere.

    Returns:
        ``user NAME``, or ``address ADDRESS`` of a request without credentials.
    """
    for source, text, _when in reasons:
        if source == SOURCE:
            user, _comma, rest = text.partition(", ")
            return rest.partition(", ")[0] if user == _ANONYMOUS else user
    return ""


def workers(limit: int) -> int:
    """Return how many of some workers may run jobs of the remote API."""
    return max(1, limit - max(1, round(limit * _KEPT)))


class Share:
    """Counts the unfinished jobs of the remote API; guarded by the queue's lock."""

    def __init__(self, hard_limit: int) -> None:
        """Start without jobs; the limit is that of all unfinished jobs."""
        self._hard_limit = hard_limit
        self._jobs: collections.Counter[str] = collections.Counter()
        self._bytes: collections.Counter[str] = collections.Counter()

    def check(self, who: str, size: int) -> None:
        """Refuse a job for which there is no room.

        Args:
            who: see `requester`.
            size: bytes of its opcodes.

        Raises:
            JobQueueFull: names the limit.
        """
        if not who:
            return
        most = max(1, round(self._hard_limit * _ONE))
        if who.startswith("address "):
            most = min(most, _MAX_ANONYMOUS)
        if self._jobs[who] >= most:
            raise errors.JobQueueFull(f"{who} has {most} unfinished jobs already")
        if self._jobs[who] and self._bytes[who] + size > _MAX_BYTES:
            raise errors.JobQueueFull(
                f"the unfinished jobs of {who} have more than {_MAX_BYTES} bytes"
            )
        if self._jobs.total() >= max(1, round(self._hard_limit * _ALL)):
            raise errors.JobQueueFull(
                "the part of the job queue that the remote API may use is full"
            )

    def add(self, who: str, size: int, jobs: int = 1) -> None:
        """Count a job of someone, or with ``jobs`` = -1 its end."""
        if not who:
            return
        self._jobs[who] += jobs
        self._bytes[who] += jobs * size
        if not self._jobs[who]:
            del self._jobs[who], self._bytes[who]
