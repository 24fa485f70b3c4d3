"""Checked answers of allocators as values; `answer_checks` creates them. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.model import opcodes


@dataclasses.dataclass(frozen=True)
class Evacuation:
    """Jobs that move instances.

    Attributes:
        moved: (instance, target group, node names).
        failed: (instance, reason).
        jobs: opcodes, one list per job.
    """

    moved: Sequence[tuple[str, str, Sequence[str]]]
    failed: Sequence[tuple[str, str]]
    jobs: Sequence[Sequence[opcodes.Opcode]]


@dataclasses.dataclass(frozen=True)
class MultiPlacement:
    """Nodes of new instances: name -> node names; and the names without a place."""

    placed: Mapping[str, Sequence[str]]
    failed: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Answer:
    """An allocator's answer.

    Attributes:
        success: whether it found a solution.
        info: its own text.
        result: node names for allocate and relocate, one for allocate-secondary, a
            JSON object for capacity, `Evacuation` or `MultiPlacement` for the others;
            None without success.
        explanation: one object per new instance with ``instance``, ``nodes`` and
            ``reasons``; empty unless requested. Only the built-in allocator has it.
    """

    success: bool
    info: str
    result: Any = None
    explanation: Sequence[Mapping[str, Any]] = ()
