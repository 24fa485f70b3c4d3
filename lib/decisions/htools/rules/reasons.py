"""Reasons why an instance cannot go to a node, as data and as text.

Values only, cheap to import; ``alloc.refusals`` finds the reasons.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import msgspec

#: Lines about possible places that are worse.
_MOST_CHOICES: Final = 3


class Reason(msgspec.Struct, frozen=True):
    """Reason why an instance cannot be on a node.

    Attributes:
        node: name of the node.
        role: ``primary`` or ``secondary``.
        kind: its name in summaries, of `constraints.KINDS`; or ``FailState``,
            ``FailGroup``, ``FailNet``, ``FailLeave`` for nodes that are excluded
            before any check; ``Score`` or ``Policy`` if another place is better.
        check: the checked quantity.
        relation: required relation of actual to wanted value: ``more than``,
            ``at least``, ``at most``, or empty for equality.
        wanted: a number or a text.
        actual: the same; its JSON key is ``found``.
        unit: of both numbers; may be empty.
    """

    node: str
    role: str
    kind: str
    check: str
    relation: str
    wanted: float | str
    actual: float | str = msgspec.field(name="found")
    unit: str = ""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Reason":
        """Return the reason of a JSON object that `data` made."""
        return msgspec.convert(data, cls)

    def data(self) -> dict[str, Any]:
        """Return a JSON object with all attributes."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def text(self) -> str:
        """Return the reason without the node as text."""
        role = "as secondary: " if self.role == "secondary" else ""
        wanted = f"{self.relation} {_shown(self.wanted, self.unit)}".strip()
        return (
            f"{role}{self.check}: wanted {wanted},"
            f" found {_shown(self.actual, self.unit)}"
        )


class Explanation(msgspec.Struct, frozen=True):
    """The nodes of an instance, and why these.

    Attributes:
        instance: name of the instance.
        nodes: its nodes, primary first; empty without a place.
        reasons: why other nodes are refused.
        choice: why other possible nodes are worse; the best of them first, some may be
            left out.
    """

    instance: str
    nodes: tuple[str, ...]
    reasons: tuple[Reason, ...]
    choice: tuple[Reason, ...] = ()

    def without_chosen(self) -> Self:
        """Return the explanation without reasons against its own nodes."""
        return msgspec.structs.replace(
            self,
            reasons=tuple(row for row in self.reasons if row.node not in self.nodes),
            choice=tuple(row for row in self.choice if row.node not in self.nodes),
        )

    def data(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "instance": self.instance,
            "nodes": list(self.nodes),
            "reasons": [reason.data() for reason in self.reasons],
            "choice": [reason.data() for reason in self.choice],
        }

    def lines(self) -> list[str]:
        """Return the text: one line for the nodes, one line per reason."""
        where = ", ".join(self.nodes) or "no place"
        printed = [*lines(self.reasons), *shortened(self.choice, _MOST_CHOICES)]
        return [
            f"Instance {self.instance}: {where}",
            *(f"  {line}" for line in printed),
        ]


def _shown(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.10g} {unit}".strip()


def shortened(listed: Iterable[Reason], most: int) -> list[str]:
    """Return the text of reasons in ``most`` lines and one with the number left out."""
    every = lines(listed)
    if len(every) <= most:
        return every
    return [*every[:most], f"and {len(every) - most} more"]


def lines(listed: Iterable[Reason]) -> list[str]:
    """Return the text of reasons, one line for all nodes with the same reason."""
    nodes: dict[str, list[str]] = {}
    for reason in listed:
        nodes.setdefault(reason.text(), []).append(reason.node)
    return [f"{', '.join(names)}: {text}" for text, names in nodes.items()]
