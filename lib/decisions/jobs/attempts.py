"""Time limits and priorities of an opcode's attempts to get its locks.

Each attempt has one time limit for all locks; the limits grow along a table. After the
end of the table, the priority becomes one step more urgent and the table starts again.
At the highest priority the opcode waits without limit. Pure; see the locking document.
"""

import functools
from typing import Final, NamedTuple

from ganeti.base.constants import jobqueue, locks

#: Each limit varies by this fraction, so competing jobs do not collide repeatedly.
VARIATION: Final = 0.05


@functools.cache
def table(
    minimum: float = locks.LOCK_ATTEMPTS_MINWAIT,
    maximum: float = locks.LOCK_ATTEMPTS_MAXWAIT,
    total: float = locks.LOCK_ATTEMPTS_TIMEOUT,
) -> tuple[float, ...]:
    """Return the limits in seconds; their sum is at least ``total``."""
    limits = [minimum]
    while sum(limits) < total:
        limits.append(min(maximum, max(minimum, (limits[-1] * 1.05) ** 1.25)))
    return tuple(limits)


class Attempt(NamedTuple):
    """The next attempt: its index in the table (None: no limit), and its priority."""

    place: int | None
    priority: int

    def limit_s(self, chance: float) -> float | None:
        """Return the limit in seconds.

        Args:
            chance: a random number from 0 to 1.
        """
        if self.place is None:
            return None
        return table()[self.place] * (1 - VARIATION + 2 * VARIATION * chance)


def after(attempt: Attempt) -> Attempt:
    """Return the attempt that follows a failed one."""
    if attempt.place is None:
        return attempt
    if attempt.place + 1 < len(table()):
        return Attempt(attempt.place + 1, attempt.priority)
    if attempt.priority > jobqueue.OP_PRIO_HIGHEST:
        return Attempt(0, attempt.priority - 1)
    return Attempt(None, attempt.priority)
