"""The next smaller size to try when no more instances of one size fit.

The published rule: the most frequent kind of refusal shrinks, step by step. Where that
leads to no place, each kind is tried alone, from the smallest size so reached upwards.

Within the bounds of one policy every rule is monotone: what fits at a size fits at each
smaller one, so the first size that fits is found by bisection. Global N+1 is not
monotone, because the places of evacuated instances depend on what else moves. Therefore
sizes before the one found are tried too where that is cheap (``is_hopeless``).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from ganeti.decisions.htools.model.policy import Policy
from ganeti.decisions.htools.rules import constraints


class InstanceSize(msgspec.Struct, frozen=True):
    """Size of an instance; memory and disk in MiB."""

    memory: int
    disk: int
    vcpus: int
    spindles: int = 1


#: Kind of refusal -> field that shrinks, published step (MiB or number), and its name
#: in policies.
_SHRINK: Final = {
    constraints.MEM: ("memory", 64, "memory"),
    constraints.DISK: ("disk", 256, "disk"),
    constraints.CPU: ("vcpus", 1, "cpus"),
    constraints.SPINDLES: ("spindles", 1, "spindles"),
}


class SizeBounds(msgspec.Struct, frozen=True):
    """Limits of a search.

    Attributes:
        policies: of the nodes that may be used.
        rounds: how often the size may shrink before the limit of instances is used up.
        is_hopeless: returns True if surely neither a size nor larger ones fit; None to
            try only the sizes of the bisection.
    """

    policies: Collection[Policy]
    rounds: int | None = None
    is_hopeless: Callable[[InstanceSize], bool] | None = None


class SizeAttempt(Protocol):
    """Tries one instance of a size."""

    def __call__(self, size: InstanceSize, *, alone: bool) -> tuple[list[int], bool]:
        """Return refusals by kind, and whether there is a place."""


class _Level(msgspec.Struct, frozen=True):
    """A size for which nothing fits, after a number of rounds."""

    size: InstanceSize
    failures: Sequence[int]
    rounds: int


def next_size(
    attempt: SizeAttempt,
    size: InstanceSize,
    failures: Sequence[int],
    bounds: SizeBounds,
) -> tuple[InstanceSize, int] | None:
    """Return the next size to place and by how many rounds it lowers the limit.

    Args:
        attempt: tries one.
        size: for which no more fits.
        failures: why, by kind.
        bounds: of the search.
    """
    descent = _Descent(attempt, bounds, [_Level(size, failures, 0)])
    result = descent.run()
    if result is not None:
        return result
    for level in reversed(descent.levels):
        for kind in reversed(_rising(level.failures)):
            alone = _alone(attempt, level.size, kind, bounds)
            if alone is not None:
                return alone, level.rounds
    return None


def _rising(failures: Sequence[int]) -> list[int]:
    """Return kinds of refusals (codes), the most frequent last."""
    return sorted(range(1, len(failures) + 1), key=lambda kind: failures[kind - 1])


class _Descent:
    """Shrinks the most frequent kind of refusal until an instance fits.

    Attributes:
        levels: sizes passed; of several with the same answer, the smallest.
    """

    def __init__(
        self, attempt: SizeAttempt, bounds: SizeBounds, levels: list[_Level]
    ) -> None:
        self._attempt, self._bounds = attempt, bounds
        self.levels = levels
        self._start, self._kind = levels[0], 0
        self._tried: dict[int, tuple[list[int], bool]] = {}

    def run(self) -> tuple[InstanceSize, int] | None:
        """Return the size that fits and the rounds before it."""
        while True:
            level = self.levels[-1]
            self._start, self._kind = level, _rising(level.failures)[-1]
            self._tried = {}
            ends = self._ends(level)
            change = _first(self._is_change, 1, ends)
            change = self._earlier(ends, change)
            for steps in sorted(set(ends) & set(self._tried)):
                # Sizes after the change were tried by bisection only.
                if change is None or steps < change:
                    self._pass(level, steps)
            if change is None:
                return None
            if self._tried[change][1]:
                size = _smaller(level.size, self._kind, change)
                return size, level.rounds + change - 1
            if not self._pass(level, change):
                return None

    def _ends(self, level: _Level) -> list[int]:
        most = _possible_steps(level.size, self._kind)
        if self._bounds.rounds is None:
            return _ends(level.size, self._kind, most, self._bounds.policies)
        # The last size within the limit gives the same answer as those before it.
        # Beyond the limit no size may be tried.
        last = self._bounds.rounds - level.rounds
        ends = _ends(level.size, self._kind, min(most, last + 1), self._bounds.policies)
        return sorted({*ends, last}) if 0 < last < most else ends

    def _earlier(self, ends: Sequence[int], change: int | None) -> int | None:
        size, kind, bounds = self._start.size, self._kind, self._bounds
        for steps in _doubtful(size, kind, ends, bounds, start=1, fitting=change):
            if steps not in self._tried and self._is_change(steps):
                return steps
        return change

    def _is_change(self, steps: int) -> bool:
        size = _smaller(self._start.size, self._kind, steps)
        failures, fits = self._attempt(size, alone=False)
        self._tried[steps] = failures, fits
        return fits or _rising(failures)[-1] != self._kind

    def _pass(self, level: _Level, steps: int) -> bool:
        """Record a size for which nothing fits, unless the limit is used up."""
        rounds = level.rounds + steps
        if self._bounds.rounds is not None and rounds > self._bounds.rounds:
            return False
        size = _smaller(level.size, self._kind, steps)
        self.levels.append(_Level(size, self._tried[steps][0], rounds))
        return True


def _alone(
    attempt: SizeAttempt, size: InstanceSize, kind: int, bounds: SizeBounds
) -> InstanceSize | None:
    """Return the first size that fits if one kind alone shrinks; not the smallest."""
    tried: dict[int, bool] = {}

    def is_over(steps: int) -> bool:
        failures, fits = attempt(_smaller(size, kind, steps), alone=True)
        tried[steps] = fits
        return fits or not failures[kind - 1]

    # Published: the smallest size that can be reached is never tried here.
    most = _possible_steps(size, kind) - 1
    ends = _ends(size, kind, most, bounds.policies)
    over = _first(is_over, 0, ends)
    for steps in _doubtful(size, kind, ends, bounds, start=0, fitting=over):
        if steps not in tried and is_over(steps):
            over = steps
            break
    return _smaller(size, kind, over) if over is not None and tried[over] else None


def _possible_steps(size: InstanceSize, kind: int) -> int:
    """Return how often a size can shrink; it never gets below one step."""
    if kind not in _SHRINK:
        return 0
    field, step, _name = _SHRINK[kind]
    return int(max(0, getattr(size, field) // step - 1))


def _smaller(size: InstanceSize, kind: int, steps: int) -> InstanceSize:
    if not steps:
        return size
    field, step, _name = _SHRINK[kind]
    return msgspec.structs.replace(size, **{field: getattr(size, field) - steps * step})


def _ends(
    size: InstanceSize, kind: int, most: int, policies: Collection[Policy]
) -> list[int]:
    """Return the last step before each bound of a policy, and the last of all."""
    if most < 0 or kind not in _SHRINK:
        return []
    field, step, name = _SHRINK[kind]
    start = getattr(size, field)
    ends = {most}
    for policy in policies:
        for low, high in policy.ranges:
            # Below a minimum, and above a maximum, the policy gives other answers.
            ends.add((start - getattr(low, name)) // step)
            ends.add((start - getattr(high, name) - 1) // step)
    return sorted(end for end in ends if 0 <= end <= most)


def _first(
    is_true: Callable[[int], bool], start: int, ends: Sequence[int]
) -> int | None:
    """Return the first number for which something is true.

    Within the numbers up to an end it stays true once it is.
    """
    low = start
    for end in ends:
        if end < low:
            continue
        # True at the end means: true somewhere in this part.
        if is_true(end):
            return _bisect(is_true, low, end)
        low = end + 1
    return None


def _doubtful(
    size: InstanceSize,
    kind: int,
    ends: Sequence[int],
    bounds: SizeBounds,
    *,
    start: int,
    fitting: int | None,
) -> Iterator[int]:
    """Yield steps before the one found, or all, at which an instance may fit."""
    is_hopeless = bounds.is_hopeless
    if is_hopeless is None:
        return

    def may_fit(steps: int) -> bool:
        return not is_hopeless(_smaller(size, kind, steps))

    low = start
    for end in ends:
        # Later sizes do not matter once an earlier one fits.
        last = end if fitting is None else min(end, fitting - 1)
        if low <= last and may_fit(last):
            yield from range(_bisect(may_fit, low, last), last + 1)
        low = end + 1


def _bisect(is_true: Callable[[int], bool], low: int, high: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if is_true(middle):
            high = middle
        else:
            low = middle + 1
    return high
