"""The diagnosis of a node: what its administrator's command printed. Pure.

A node without a command, or with one that cannot be used, is reported as in order: a
mistake in a script must not empty a node. ``details`` says what is wrong.
"""

import enum
import json
from typing import Any, Final

#: Longest text of a problem, in characters.
_MAX_TEXT: Final = 500
#: Depth of an object that is still read; incidents are compared and stored.
_MAX_DEPTH: Final = 30


class NodeHealth(enum.StrEnum):
    """Need of a node, as on the wire, from harmless to severe."""

    OK = "Ok"
    LIVE_REPAIR = "live-repair"
    EVACUATE = "evacuate"
    EVACUATE_FAILOVER = "evacuate-failover"


class NoDiagnosis(dict[str, Any]):
    """The report of a node whose command cannot be used."""

    @property
    def problem(self) -> str:
        """Why it cannot be used."""
        return str(self["details"])


def in_order(details: str | None = None) -> dict[str, Any]:
    """Return the diagnosis of a node that needs nothing.

    Args:
        details: why there is no other one.
    """
    data: dict[str, Any] = {"status": NodeHealth.OK.value}
    if details is None:
        return data
    return NoDiagnosis(data, details=details[:_MAX_TEXT])


def parse(output: str) -> dict[str, Any]:
    """Return the object that a diagnose command has printed."""
    try:
        data = json.loads(output, parse_constant=_refuse_constant)
        # Half of a surrogate pair and a number without bounds can be read, not sent.
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as err:
        return in_order(f"the output of the diagnose command is not JSON: {err}")
    if not isinstance(data, dict):
        return in_order("the output of the diagnose command is not a JSON object")
    if _depth(data) > _MAX_DEPTH:
        return in_order(f"the output is nested more than {_MAX_DEPTH} deep")
    return data


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, parts), default=0)
