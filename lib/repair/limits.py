"""Limits of automatons: one function that each of them asks before it acts. Pure.

An administrator can freeze all automatons, and limit the share of instances that they
move at once. More moves than that at one time are a mass event, such as the loss of a
room: a quiet time then gives people the time to step in.
"""

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

import msgspec

MOVED_SHARE: Final = "moved-share"
QUIET_TIME: Final = "quiet-time"
FROZEN: Final = "frozen"
#: Name of each limit -> largest value; the smallest one is 0.
NAMES: Final[Mapping[str, float]] = {
    # Percent of all instances.
    MOVED_SHARE: 100.0,
    # Seconds: a week.
    QUIET_TIME: 7 * 86400.0,
}
#: Longest reason of a freeze, in characters.
MAX_REASON: Final = 500
_PERCENT: Final = 100.0


class Act(enum.Enum):
    """Kinds of acts."""

    #: Starts an instance where it is, or records a fact.
    START = enum.auto()
    #: Repairs or empties something.
    REPAIR = enum.auto()
    #: Moves an instance.
    MOVE = enum.auto()


class Freeze(msgspec.Struct, frozen=True):
    """Why, and since when, in seconds since 1970, no automaton acts."""

    reason: str
    time: float


class Refusal(NamedTuple):
    """The limit that refuses an act, and a text for people."""

    limit: str
    text: str


class Automation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that limits automatons at the beginning of a round.

    Attributes:
        revision: of the configuration.
        limits: name -> value; a limit that is not set is missing.
        freeze: None if automatons may act.
        instances: number of instances of the cluster.
        moving: names of instances that jobs of automatons are moving.
        mass_event: last time that the share of moved instances refused an act, within
            the quiet time; None if it did not.
    """

    revision: int = 0
    limits: dict[str, float] = {}
    freeze: Freeze | None = None
    instances: int = 0
    moving: tuple[str, ...] = ()
    mass_event: float | None = None

    def refusal(self, act: Act, now: float, instance: str = "") -> Refusal | None:
        """Return why an automaton must not act; None if it may.

        Args:
            act: the kind of act.
            now: seconds since 1970.
            instance: name of the instance that is moved.
        """
        if self.freeze is not None:
            why = self.freeze.reason or "no reason given"
            text = f"automation is frozen ({why}); gnt-cluster thaw ends that"
            return Refusal(FROZEN, text)
        if act is Act.START:
            return None
        quiet_s = self.limits.get(QUIET_TIME, 0.0)
        # Of a clock that was set back the event is in the future.
        if self.mass_event is not None and abs(now - self.mass_event) < quiet_s:
            return Refusal(
                QUIET_TIME,
                f"a mass event began the quiet time of {quiet_s:g} seconds",
            )
        share = self.limits.get(MOVED_SHARE)
        if act is not Act.MOVE or share is None or instance in self.moving:
            return None
        most = most_moved(share, self.instances)
        if len(self.moving) < most:
            return None
        return Refusal(
            MOVED_SHARE,
            f"{len(self.moving)} of {self.instances} instances are being moved, the"
            f" limit is {share:g} % ({most})",
        )

    def with_move(self, instance: str) -> Self:
        """Return it with one more instance that is being moved."""
        if instance in self.moving:
            return self
        return msgspec.structs.replace(self, moving=(*self.moving, instance))


def most_moved(share: float, instances: int) -> int:
    """Return how many instances may be moved at once: at least one, unless 0 %."""
    if share <= 0:
        return 0
    return max(1, int(instances * share / _PERCENT))


def problem(name: str, value: float) -> str:
    """Return the reason why a limit cannot be set, or ""."""
    if name not in NAMES:
        return f"automation limits: wanted one of {', '.join(NAMES)}, found {name!r}"
    if not 0 <= value <= NAMES[name]:
        unit = "percent" if name == MOVED_SHARE else "seconds"
        return f"{name}: wanted 0 to {NAMES[name]:g} {unit}, found {value:g}"
    return ""
