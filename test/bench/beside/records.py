"""Results of a bench of placement programs: rows, kept as JSON between runs."""

import dataclasses
import json
import pathlib
from typing import Any

from fakes.made_clusters import Shape


@dataclasses.dataclass(frozen=True)
class Result:
    """Result of a tool.

    Attributes:
        words: for the table.
        score: of the cluster afterwards, lower is better; None without one.
        count: moves made or instances placed.
        steps: what can be compared line by line.
        is_whole: False when the tool was ended before its end.
    """

    words: str
    score: float | None
    count: int
    steps: tuple[Any, ...]
    is_whole: bool


@dataclasses.dataclass(frozen=True)
class Side:
    """One implementation's run of a case.

    Attributes:
        seconds: on the wall; None when it was ended at its limit.
        cpu_s: of the processor, user and system.
        peak_mib: largest resident memory.
        result: what it found.
    """

    seconds: float | None
    cpu_s: float
    peak_mib: float
    result: Result


@dataclasses.dataclass(frozen=True)
class Row:
    """A case with what was found.

    Attributes:
        tool, shape, seed: the case.
        limit_s: processor seconds that the others were given.
        ours: our run.
        theirs: the other run; None without one.
        why_not: why there is no other run.
        verdict: our result beside theirs.
    """

    tool: str
    shape: Shape
    seed: int
    limit_s: float
    ours: Side
    theirs: Side | None
    why_not: str
    verdict: str

    @property
    def case(self) -> tuple[str, Shape, int]:
        """The fields that identify it."""
        return self.tool, self.shape, self.seed


def save(rows: list[Row], path: pathlib.Path) -> None:
    """Write rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))


def read(path: pathlib.Path) -> list[Row]:
    """Read rows; none when there is no file yet."""
    return (
        [_row(data) for data in json.loads(path.read_text())] if path.exists() else []
    )


def _row(data: dict[str, Any]) -> Row:
    sides = {name: _side(data[name]) for name in ("ours", "theirs")}
    return Row(**data | sides | {"shape": Shape(**data["shape"])})


def _side(data: dict[str, Any] | None) -> Side | None:
    if data is None:
        return None
    steps = tuple(data["result"]["steps"])
    return Side(**data | {"result": Result(**data["result"] | {"steps": steps})})
