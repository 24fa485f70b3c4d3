"""``freeze`` and ``thaw``, and the form of the limits of automatons."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text.units import parse_duration
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output.text import timestamp
from ganeti.commands.cli.values import finite
from ganeti.decisions.repair.limits import (
    FENCED_PER_HOUR,
    MOVED_SHARE,
    NAMES,
    QUIET_TIME,
)

_WANTED: Final = {
    MOVED_SHARE: "percent such as 10",
    QUIET_TIME: "a time such as 10m",
    FENCED_PER_HOUR: "a number such as 2",
}


def freeze(ctx: CommandContext) -> None:
    """Let no automaton act."""
    ctx.call("FreezeAutomation", " ".join(ctx.args))
    ctx.out("Automation is frozen; gnt-cluster thaw ends that.")


def thaw(ctx: CommandContext) -> None:
    """Let automatons act again."""
    ctx.call("ThawAutomation")
    ctx.out("Automation is no longer frozen.")


def parse_limits(given: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the limits in an option; None removes one.

    Raises:
        OpPrereqError: a limit is unknown, or its value is no number.
    """
    return {name: _limit(name, value) for name, value in given.items()}


def _limit(name: str, value: Any) -> float | None:
    if name not in NAMES:
        raise errors.OpPrereqError(
            f"--automation-limits: wanted one of {', '.join(NAMES)}, found {name!r}",
            ecodes.ECODE_INVAL,
        )
    if value is None:
        return None
    try:
        if name == QUIET_TIME:
            return float(parse_duration(str(value)))
        if name == FENCED_PER_HOUR:
            return finite(int(str(value)))
        return finite(str(value).removesuffix("%"))
    except (ValueError, errors.OpPrereqError) as err:
        raise errors.OpPrereqError(
            f"--automation-limits: {name}: wanted {_WANTED[name]}, found"
            f" {str(value)!r}",
            ecodes.ECODE_INVAL,
        ) from err


def limits_text(limits: Mapping[str, float]) -> str:
    """Return the limits as the option takes them."""
    return ",".join(f"{name}={limits[name]:g}" for name in NAMES if name in limits)


def freeze_text(state: Mapping[str, Any]) -> str:
    """Return the row of a freeze in the list of parts that are off."""
    why = f" ({state['reason']})" if state["reason"] else ""
    since = timestamp(state["time"])
    return f"automation{why} (frozen since {since}; gnt-cluster thaw)"


def death_text(death: Mapping[str, Any]) -> str:
    """Return the row of a node that does not answer."""
    text = f"{death['name']}: {death['phase']} since {timestamp(death['since'])}"
    return f"{text}: {death['reason']}" if death["reason"] else text
