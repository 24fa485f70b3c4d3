"""Why an instance cannot go to a node: as data, and in words.

Values only, cheap to load; what finds reasons is in ``objections``.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Reason:
    """Why an instance cannot be on a node.

    Attributes:
        node: its name.
        role: ``primary`` or ``secondary``.
        kind: the word for it in summaries, of `checks.KINDS`; or ``FailState``,
            ``FailGroup``, ``FailNet``, for nodes that are not even looked at.
        check: what the rule is about.
        relation: of what is found to what is wanted: ``more than``, ``at least``,
            ``at most``, or empty for the same.
        wanted: a number or a word.
        found: the same.
        unit: of both numbers, may be empty.
    """

    node: str
    role: str
    kind: str
    check: str
    relation: str
    wanted: float | str
    found: float | str
    unit: str = ""

    def data(self) -> dict[str, Any]:
        """Give a JSON object with all attributes; they are what makes one, too."""
        return dataclasses.asdict(self)

    def words(self) -> str:
        """Say all but the node."""
        role = "as secondary: " if self.role == "secondary" else ""
        wanted = f"{self.relation} {_shown(self.wanted, self.unit)}".strip()
        return (
            f"{role}{self.check}: wanted {wanted},"
            f" found {_shown(self.found, self.unit)}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """Where an instance goes, primary first and nowhere without a place; and why."""

    instance: str
    nodes: tuple[str, ...]
    reasons: tuple[Reason, ...]

    def data(self) -> dict[str, Any]:
        """Give a JSON object."""
        return {
            "instance": self.instance,
            "nodes": list(self.nodes),
            "reasons": [reason.data() for reason in self.reasons],
        }

    def lines(self) -> list[str]:
        """Put it into words: a line for the nodes, one for each reason."""
        where = ", ".join(self.nodes) or "no place"
        return [
            f"Instance {self.instance}: {where}",
            *(f"  {line}" for line in lines(self.reasons)),
        ]


def _shown(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.10g} {unit}".strip()


def lines(found: Iterable[Reason]) -> list[str]:
    """Put reasons into words, one line for nodes with the same one."""
    nodes: dict[str, list[str]] = {}
    for reason in found:
        nodes.setdefault(reason.words(), []).append(reason.node)
    return [f"{', '.join(names)}: {words}" for words, names in nodes.items()]
