"""Results of drills: a line for each, percentiles of the recovery, JSON."""

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

#: Wide enough for the names of all drills.
_NAME_WIDTH: Final = 16


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one drill.

    Attributes:
        drill: its name.
        round: number of the round, from 1.
        node: the node that it was about.
        recovery_s: seconds from the fault until the guest ran again; None if it was
            left alone, or did not come back.
        boots: boots of the guest during the drill, the one before it included.
        journal: entries of the decision journal about the node.
        jobs: jobs that were acknowledged during the drill.
        still_s: longest time in seconds for which the guest did not count.
        facts: other observations.
        problems: what was wrong; empty if the drill passed.
    """

    drill: str
    round: int
    node: str
    recovery_s: float | None = None
    boots: int = 0
    journal: int = 0
    jobs: int = 0
    still_s: float = 0.0
    facts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The result as one line."""
        state = "FAILED" if self.problems else "passed"
        texts = [*self.problems, *self.facts]
        if self.recovery_s is not None:
            texts.insert(0, f"running again after {self.recovery_s:.1f} s")
        if self.still_s:
            texts.append(f"longest pause {self.still_s:.1f} s")
        return f"{self.drill:<{_NAME_WIDTH}} {self.node}: {state}: {'; '.join(texts)}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Return counts, and percentiles of the seconds of recovery if there are any."""
    times = [each.recovery_s for each in results if each.recovery_s is not None]
    counts: dict[str, Any] = {
        "drills": len(results),
        "failed": sum(bool(each.problems) for each in results),
        "recoveries": len(times),
    }
    for name, value in (("p50_s", 50), ("p95_s", 95), ("longest_s", 100)):
        counts[name] = round(percentile(times, value), 2) if times else None
    return counts


def summary_text(counts: dict[str, Any]) -> str:
    """Return the summary as a text."""
    text = f"{counts['drills']} drills, {counts['failed']} failed"
    if not counts["recoveries"]:
        return text
    return (
        f"{text}; {counts['recoveries']} recoveries: p50 {counts['p50_s']:.1f} s, p95"
        f" {counts['p95_s']:.1f} s, longest {counts['longest_s']:.1f} s"
    )
