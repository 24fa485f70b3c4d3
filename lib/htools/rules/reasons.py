"""Why an instance cannot go to a node: as data, and in words.

Values only, cheap to load; what finds reasons is in ``alloc.refusals``.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

#: Lines that tell of possible places that are worse.
_MOST_CHOICES: Final = 3


class Reason(msgspec.Struct, frozen=True):
    """Why an instance cannot be on a node.

    Attributes:
        node: its name.
        role: ``primary`` or ``secondary``.
        kind: the word for it in summaries, of `constraints.KINDS`; or ``FailState``,
            ``FailGroup``, ``FailNet``, ``FailLeave``, for nodes that are not even
            looked at; ``Score`` or ``Policy`` for why another place is better.
        check: what the rule is about.
        relation: of what is found to what is wanted: ``more than``, ``at least``,
            ``at most``, or empty for the same.
        wanted: a number or a word.
        listed: the same.
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
        return msgspec.structs.asdict(self)

    def words(self) -> str:
        """Say all but the node."""
        role = "as secondary: " if self.role == "secondary" else ""
        wanted = f"{self.relation} {_shown(self.wanted, self.unit)}".strip()
        return (
            f"{role}{self.check}: wanted {wanted},"
            f" found {_shown(self.found, self.unit)}"
        )


class Explanation(msgspec.Struct, frozen=True):
    """Where an instance goes, and why there.

    Attributes:
        instance: its name.
        nodes: where it goes, primary first; empty without a place.
        reasons: what speaks against other nodes.
        choice: why other nodes, which were possible, are worse; the best of them
            first, some may be left out.
    """

    instance: str
    nodes: tuple[str, ...]
    reasons: tuple[Reason, ...]
    choice: tuple[Reason, ...] = ()

    def data(self) -> dict[str, Any]:
        """Give a JSON object."""
        return {
            "instance": self.instance,
            "nodes": list(self.nodes),
            "reasons": [reason.data() for reason in self.reasons],
            "choice": [reason.data() for reason in self.choice],
        }

    def lines(self) -> list[str]:
        """Put it into words: a line for the nodes, one for each reason."""
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
    """Put reasons into words, in so many lines at most and one for how many more."""
    every = lines(listed)
    if len(every) <= most:
        return every
    return [*every[:most], f"and {len(every) - most} more"]


def lines(listed: Iterable[Reason]) -> list[str]:
    """Put reasons into words, one line for nodes with the same one."""
    nodes: dict[str, list[str]] = {}
    for reason in listed:
        nodes.setdefault(reason.words(), []).append(reason.node)
    return [f"{', '.join(names)}: {words}" for words, names in nodes.items()]
