"""Placement programs on made-up clusters: time, memory and results, beside others.

``hail`` places one instance, ``hbal`` makes a whole plan, ``hspace`` counts what fits;
the same files go to another implementation's programs when they are installed. Prints
one table and how time grows with the number of nodes, and writes all figures as JSON.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Sequence

from beside import cases, measure, plot

from fakes import made_clusters
from fakes import placement_programs as programs
from fakes.made_clusters import Shape

SIZES = (20, 100, 500, 1000)
OURS_LIMIT_S = 600.0
QUICK_LIMIT_S = 4.0
QUICK = (
    (Shape(20), 1),
    (Shape(20, template="sharedfile"), 1),
    (Shape(20, per_node=5, tight=True), 1),
    (Shape(100), 1),
)
OTHER = "ganeti-htools 3.0.2"


@dataclasses.dataclass(frozen=True)
class Side:
    """One implementation's run of a case."""

    run: measure.Run
    result: cases.Result

    def figures(self) -> dict[str, object]:
        """Return what goes to JSON."""
        return {
            "seconds": self.run.seconds,
            "cpu_s": self.run.cpu_s,
            "peak_mib": self.run.peak_mib,
            "result": self.result.words,
        }


@dataclasses.dataclass(frozen=True)
class Row:
    """A case with what was found."""

    tool: str
    shape: Shape
    seed: int
    ours: Side
    theirs: Side | None
    why_not: str
    verdict: str


class Bench:
    """Runs cases; what took the other programs too long is not tried larger."""

    def __init__(self, tools: Sequence[str], limit_s: float) -> None:
        self.tools = tools
        self.limit_s = limit_s
        self.too_large: dict[tuple[str, str], int] = {}

    def rows(self, listed: Sequence[tuple[Shape, int]]) -> Iterator[Row]:
        """Measure all cases, small clusters first."""
        for shape, seed in sorted(listed, key=lambda case: case[0].nodes):
            made = made_clusters.make(shape, seed)
            for tool in self.tools:
                if programs.ours(tool):
                    yield self._row(tool, shape, seed, made)

    def _row(self, tool: str, shape: Shape, seed: int, made: made_clusters.Made) -> Row:
        with tempfile.TemporaryDirectory() as directory:
            words = cases.prepare(tool, shape, made, pathlib.Path(directory))

            def side(program: str, limit_s: float) -> Side:
                run = measure.best([program, *words], limit_s)
                return Side(run, cases.judge(tool, shape, made, run))

            ours = side(programs.ours(tool) or "", OURS_LIMIT_S)
            other, why_not = programs.theirs(tool), self._hopeless(tool, shape)
            theirs = side(other, self.limit_s) if other and not why_not else None
        if theirs and theirs.run.seconds is None:
            self.too_large.setdefault((tool, shape.template), shape.nodes)
        verdict = cases.verdict(tool, ours.result, theirs.result) if theirs else ""
        return Row(tool, shape, seed, ours, theirs, why_not, verdict)

    def _hopeless(self, tool: str, shape: Shape) -> str:
        nodes = self.too_large.get((tool, shape.template), shape.nodes)
        if nodes >= shape.nodes:
            return ""
        return f"not run: over {self.limit_s:g} s at {nodes} nodes"


HEADER = [
    "tool",
    "cluster",
    "seed",
    "s",
    "CPU s",
    "MiB",
    "result",
    "other s",
    "CPU s",
    "MiB",
    "result",
    "ours",
]


def cells(row: Row, limit_s: float) -> list[str]:
    """Return a row of the table."""
    start = [row.tool, str(row.shape), str(row.seed), *_side(row.ours, OURS_LIMIT_S)]
    if row.theirs is None:
        return [*start, "", "", "", row.why_not, row.verdict]
    return [*start, *_side(row.theirs, limit_s), row.verdict]


def _side(side: Side, limit_s: float) -> list[str]:
    run = side.run
    wall = "-" if run.seconds is None else f"{run.seconds:.2f}"
    cpu = _cpu(side, limit_s).removesuffix(" s")
    return [wall, cpu, f"{run.peak_mib:.0f}", side.result.words]


def _cpu(side: Side | None, limit_s: float) -> str:
    if side is None:
        return "-"
    if side.run.seconds is None:
        return f"> {limit_s:g} s"
    return f"{side.run.cpu_s:.2f} s"


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells, the first one a header, as a table."""
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    rule = "  ".join("=" * max(1, width) for width in widths)
    told = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join([rule, told[0].rstrip(), rule, *map(str.rstrip, told[1:]), rule])


def typical(rows: Sequence[Row], tool: str, nodes: int) -> Row | None:
    """Return the DRBD cluster of a size that stands for it."""
    plain = Shape(nodes)
    return next((r for r in rows if r.tool == tool and r.shape == plain), None)


def growth(rows: Sequence[Row], limit_s: float) -> str:
    """Return the table of processor seconds by number of nodes."""
    tools = list(dict.fromkeys(row.tool for row in rows))
    lines = [["nodes", *(word for t in tools for word in (t, f"{t}, other"))]]
    for nodes in sorted(
        {row.shape.nodes for row in rows if row.shape == Shape(row.shape.nodes)}
    ):
        line = [f"{nodes:,}"]
        for tool in tools:
            row = typical(rows, tool, nodes)
            line.append(_cpu(row.ours if row else None, OURS_LIMIT_S))
            line.append(_cpu(row.theirs if row else None, limit_s))
        lines.append(line)
    return table(lines)


def picture(rows: Sequence[Row], limit_s: float) -> str:
    """Return the growth as a picture."""
    panels = []
    for tool in dict.fromkeys(row.tool for row in rows):
        shown = [r for r in rows if r.tool == tool and r.shape == Shape(r.shape.nodes)]
        shown = [row for row in shown if row.seed == 1]
        ours = [(row.shape.nodes, row.ours) for row in shown]
        others = [(row.shape.nodes, row.theirs) for row in shown if row.theirs]
        lines = [
            plot.Line("ours", _points(ours), ()),
            plot.Line(OTHER, _points(others), _bounds(others, limit_s)),
        ]
        panels.append(plot.Panel(tool, lines))
    return plot.svg(panels, "nodes, ten DRBD instances each", "processor seconds")


def _points(sides: Sequence[tuple[int, Side]]) -> list[tuple[float, float]]:
    return [(x, side.run.cpu_s) for x, side in sides if side.run.seconds is not None]


def _bounds(
    sides: Sequence[tuple[int, Side]], limit_s: float
) -> list[tuple[float, float]]:
    return [(x, limit_s) for x, side in sides if side.run.seconds is None]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few cases, two minutes")
    parser.add_argument(
        "--growth", action="store_true", help="only what the growth table shows"
    )
    parser.add_argument("--sizes", help="numbers of nodes, with commas")
    parser.add_argument("--tools", default=",".join(cases.TOOLS), help="with commas")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="CPU seconds for the others"
    )
    parser.add_argument("--json", default="build/bench-placement.json", metavar="FILE")
    parser.add_argument("--plot", metavar="FILE", help="write the growth as SVG")
    parser.add_argument(
        "--install-other", action="store_true", help="install the other programs first"
    )
    return parser.parse_args()


def main() -> None:
    """Run the bench."""
    chosen = options()
    if chosen.install_other:
        programs.install()
    tools, listed, limit_s = chosen.tools.split(","), [], chosen.limit
    if chosen.quick:
        listed, limit_s = list(QUICK), min(limit_s, QUICK_LIMIT_S)
    sizes = [int(text) for text in chosen.sizes.split(",")] if chosen.sizes else SIZES
    if not chosen.quick or chosen.sizes:
        listed = [case for size in sizes for case in cases.shapes(size)]
    if chosen.growth:
        listed = [(Shape(size), 1) for size in sizes]
    for tool in tools:
        if not programs.ours(tool):
            print(f"{tool}: not built here, left out")
        elif not programs.theirs(tool):
            print(
                f"{tool}: the other one is not installed (package {programs.PACKAGE},"
                " --install-other), ours alone"
            )
    rows = []
    for row in Bench(tools, limit_s).rows(listed):
        rows.append(row)
        print(
            f"{row.tool} {row.shape}, seed {row.seed}: {row.verdict}", file=sys.stderr
        )
    print(table([HEADER, *(cells(row, limit_s) for row in rows)]))
    print(
        f"\nProcessor seconds by number of nodes, ten DRBD instances each:\n\n{growth(rows, limit_s)}"
    )
    figures = [
        {
            "tool": row.tool,
            "cluster": str(row.shape),
            "nodes": row.shape.nodes,
            "seed": row.seed,
            "ours": row.ours.figures(),
            "theirs": row.theirs.figures() if row.theirs else None,
            "verdict": row.verdict,
        }
        for row in rows
    ]
    pathlib.Path(chosen.json).write_text(json.dumps(figures, indent=1))
    if chosen.plot:
        pathlib.Path(chosen.plot).write_text(picture(rows, limit_s))


if __name__ == "__main__":
    main()
