"""Progress of a long step, for a user who watches the job on a terminal.

Progress is written as log entries of its own kind, first often and then less often,
so long jobs do not fill the store. The unit itself writes the lines of the job log.
"""

from typing import Final

from ganeti.base.constants import jobqueue
from ganeti.base.text import units
from ganeti.operations import base

#: Seconds until the first entry, and between the first ones.
FIRST_S: Final = 2.0
#: Each pause is longer than the one before, up to this number of seconds.
LONGEST_S: Final = 10.0
_GROWTH: Final = 1.1


class Progress:
    """One step of a known amount, such as the wiping of one disk."""

    def __init__(
        self, ctx: base.Context, what: str, total: float, *, unit: str = "MiB"
    ) -> None:
        """Start measuring.

        Args:
            ctx: the operation.
            what: name of the step, such as ``wiping disk/0``.
            total: amount of work in units.
            unit: name of the unit.
        """
        self._ctx = ctx
        self._what = what
        self._total = total
        self._unit = unit
        self._begun = self._last = ctx.clock.monotonic()
        self._pause_s = FIRST_S

    def at(
        self, done: float, *, rate: float | None = None, left_s: float | None = None
    ) -> None:
        """Report the amount done, if a report is due.

        Args:
            done: units.
            rate: units per second, where the source knows it better than the average.
            left_s: seconds left, where the source knows it better than the rate.
        """
        now = self._ctx.clock.monotonic()
        if now - self._last < self._pause_s:
            return
        if rate is None and now > self._begun:
            rate = done / (now - self._begun)
        if left_s is None and rate:
            left_s = max(0.0, self._total - done) / rate
        text = line(self._what, done, self._total, rate, left_s, unit=self._unit)
        self._ctx.log.entry(jobqueue.ELOG_PROGRESS, text)
        self._last = now
        self._pause_s = min(LONGEST_S, self._pause_s * _GROWTH)


def line(
    what: str,
    done: float,
    total: float,
    rate: float | None,
    left_s: float | None,
    *,
    unit: str = "MiB",
) -> str:
    """Return the text about a running step."""
    parts = [f"{done:.0f} of {total:.0f} {unit}"]
    if total:
        parts.append(f"{min(100.0, 100.0 * done / total):.0f} %")
    if rate:
        parts.append(f"{rate:.1f} {unit}/s")
    if left_s is not None:
        parts.append(f"{units.format_duration(left_s)} left")
    return f"{what}: {', '.join(parts)}"
