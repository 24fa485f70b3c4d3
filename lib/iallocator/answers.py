"""What allocators answer, checked, as values; `answer_checks` makes them. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import opcodes


@dataclasses.dataclass(frozen=True)
class Evacuation:
    """Jobs that move instances.

    Attributes:
        moved: (instance, target group, node names).
        failed: (instance, reason).
        jobs: opcodes, one list a job.
    """

    moved: Sequence[tuple[str, str, Sequence[str]]]
    failed: Sequence[tuple[str, str]]
    jobs: Sequence[Sequence[opcodes.Opcode]]


@dataclasses.dataclass(frozen=True)
class MultiPlacement:
    """Where new instances go: name -> node names; and the names without a place."""

    placed: Mapping[str, Sequence[str]]
    failed: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What an allocator said.

    Attributes:
        success: whether it found something.
        info: its own words.
        result: node names for allocate and relocate, one for allocate-secondary, a
            JSON object for capacity, `Evacuation` or `MultiPlacement` for the others;
            None without success.
        explanation: for each new instance an object with ``instance``, ``nodes`` and
            ``reasons``; empty unless asked for, and known of the built-in one only.
    """

    success: bool
    info: str
    result: Any = None
    explanation: Sequence[Mapping[str, Any]] = ()
