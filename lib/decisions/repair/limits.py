"""Limits of automatons: one function that each of them asks before it acts. Pure.

An administrator can freeze all automatons, and limit the share of instances that they
move at once, and the nodes that they fence. More moves than that at one time are a mass
event, such as the loss of a room: a quiet time then gives people the time to step in.
"""

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

import msgspec

MOVED_SHARE: Final = "moved-share"
QUIET_TIME: Final = "quiet-time"
FENCED_PER_HOUR: Final = "fenced-per-hour"
FROZEN: Final = "frozen"
#: Name of each limit -> largest value; the smallest one is 0.
NAMES: Final[Mapping[str, float]] = {
    # Percent of all instances.
    MOVED_SHARE: 100.0,
    # Seconds: a week.
    QUIET_TIME: 7 * 86400.0,
    # Nodes that are switched off because they seem dead.
    FENCED_PER_HOUR: 1000.0,
}
#: Name of each limit -> unit of its value.
_UNITS: Final[Mapping[str, str]] = {
    MOVED_SHARE: "percent",
    QUIET_TIME: "seconds",
    FENCED_PER_HOUR: "nodes",
}
#: Limits of fencing where none are set.
DEFAULT_FENCED: Final = 1.0
DEFAULT_FENCE_QUIET_S: Final = 600.0
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
    #: Switches a node off.
    FENCE = enum.auto()


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
        fenced: times at which nodes were fenced, of the last hour.
        node_death: whether dead nodes are fenced.
    """

    revision: int = 0
    limits: dict[str, float] = {}
    freeze: Freeze | None = None
    instances: int = 0
    moving: tuple[str, ...] = ()
    mass_event: float | None = None
    fenced: tuple[float, ...] = ()
    node_death: bool = False

    def stop(self) -> Refusal | None:
        """Return the refusal of everything by a freeze; None without one."""
        if self.freeze is None:
            return None
        why = self.freeze.reason or "no reason given"
        text = f"automation is frozen ({why}); gnt-cluster thaw ends that"
        return Refusal(FROZEN, text)

    def refusal(self, act: Act, now: float, instance: str = "") -> Refusal | None:
        """Return why an automaton must not act; None if it may.

        Args:
            act: the kind of act.
            now: seconds since 1970.
            instance: name of the instance that is moved.
        """
        if (frozen := self.stop()) is not None or act is Act.START:
            return frozen
        default_s = DEFAULT_FENCE_QUIET_S if act is Act.FENCE else 0.0
        quiet_s = self.limits.get(QUIET_TIME, default_s)
        # Of a clock that was set back the event is in the future.
        if self.mass_event is not None and abs(now - self.mass_event) < quiet_s:
            return Refusal(
                QUIET_TIME,
                f"a mass event began the quiet time of {quiet_s:g} seconds",
            )
        if act is Act.FENCE:
            return self._fence_refusal()
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

    def _fence_refusal(self) -> Refusal | None:
        most = self.limits.get(FENCED_PER_HOUR, DEFAULT_FENCED)
        if len(self.fenced) < int(most):
            return None
        return Refusal(
            FENCED_PER_HOUR,
            f"nodes fenced within an hour: {len(self.fenced)}, the limit"
            f" {FENCED_PER_HOUR} is {int(most)}",
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
        return f"{name}: wanted 0 to {NAMES[name]:g} {_UNITS[name]}, found {value:g}"
    return ""
