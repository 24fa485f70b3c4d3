"""Tables, verdicts and a picture of what a bench of placement programs found."""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from beside import plot
from beside.records import Row, Side
from fakes.made_clusters import Shape

OTHER = "ganeti-htools 3.0.2"
#: The promise of each program, and the verdicts that break it.
PROMISES = {
    "hail": "the score is never worse than theirs",
    "hbal": "the final score is never worse than theirs, with no more moves",
    "hspace": "each count is theirs or more",
}
_HEADER = (
    *("tool", "cluster", "seed", "s", "CPU s", "MiB", "result"),
    *("other s", "CPU s", "MiB", "result", "ours"),
)


def is_broken(row: Row) -> bool:
    """Return whether a row breaks what the program promises."""
    return any(word.isupper() and len(word) > 1 for word in row.verdict.split())


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells, the first one a header, as a table."""
    widths = [max(1, *(len(line[k]) for line in lines)) for k in range(len(lines[0]))]
    rule = "  ".join("=" * width for width in widths)
    reported = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join(
        [rule, reported[0].rstrip(), rule, *map(str.rstrip, reported[1:]), rule]
    )


def cases(rows: Iterable[Row]) -> str:
    """Return the table of all cases."""
    return table([_HEADER, *(_cells(row) for row in rows)])


def _cells(row: Row) -> list[str]:
    start = [row.tool, str(row.shape), str(row.seed), *_side(row.ours)]
    if row.theirs is None:
        return [*start, "", "", "", row.why_not, row.verdict]
    return [*start, *_side(row.theirs), row.verdict]


def _side(side: Side) -> list[str]:
    wall = "-" if side.seconds is None else f"{side.seconds:.2f}"
    cpu = f"{side.cpu_s:.2f}" if side.seconds is not None else f"> {side.cpu_s:.0f}"
    return [wall, cpu, f"{side.peak_mib:.0f}", side.result.words]


def kinds(rows: Sequence[Row], tool: str) -> str:
    """Return a tool's processor seconds by kind of cluster and number of nodes.

    Of several seeds the middle is shown.
    """
    mine = [row for row in rows if row.tool == tool]
    sizes = sorted({row.shape.nodes for row in mine})
    lines = [["cluster", *(w for n in sizes for w in (f"{n:,}", "other"))]]
    for kind in dict.fromkeys(_kind(row.shape) for row in mine):
        line = [kind]
        for nodes in sizes:
            actual = [
                row
                for row in mine
                if row.shape.nodes == nodes and _kind(row.shape) == kind
            ]
            line.append(_seconds([row.ours for row in actual]))
            line.append(_seconds([row.theirs for row in actual if row.theirs]))
        lines.append(line)
    return table(lines)


def _kind(shape: Shape) -> str:
    """Name a kind of cluster without its size."""
    name = str(dataclasses.replace(shape, offline=0))
    return name.split(" nodes ", 1)[1]


def _seconds(sides: Sequence[Side]) -> str:
    """Return the middle of what some runs took, a bound when one was ended."""
    if not sides:
        return ""
    middle = statistics.median_high([side.cpu_s for side in sides])
    if any(side.seconds is None for side in sides):
        return f"> {middle:.0f}"
    return f"{middle:.2f}" if middle < 10 else f"{middle:.0f}"


def verdicts(rows: Sequence[Row]) -> str:
    """Return a line for each tool, and one for each case that breaks its promise."""
    out = []
    for tool, promise in PROMISES.items():
        actual = [row for row in rows if row.tool == tool]
        if not actual:
            continue
        broken = [row for row in actual if is_broken(row)]
        out.append(f"{tool}: {promise}: {_compared(actual, len(broken))}")
        out += [f"  {_broken(row)}" for row in broken]
    return "\n".join(out)


def _compared(rows: Sequence[Row], broken: int) -> str:
    """Say how many cases speak for a promise."""
    there = [row for row in rows if row.theirs and row.verdict != "only ours"]
    if not there:
        return f"not compared, no answer of theirs in {len(rows)} cases"
    word = "BROKEN" if broken else "holds"
    return (
        f"{word}, {len(there) - broken} of {len(there)} compared ({_counted(there)});"
        f" no answer of theirs in {len(rows) - len(there)} more"
    )


def _counted(rows: Sequence[Row]) -> str:
    kinds = [
        "their first moves" if "first" in row.verdict else row.verdict for row in rows
    ]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _broken(row: Row) -> str:
    other = row.theirs.result.words if row.theirs else row.why_not
    start = f"{row.tool} {row.shape}, seed {row.seed}: {row.verdict}"
    return f"{start}: ours {row.ours.result.words}, theirs {other}"


def _typical(rows: Sequence[Row], tool: str) -> list[Row]:
    """Return the DRBD clusters that stand for their sizes."""
    return [
        row
        for row in rows
        if row.tool == tool and row.shape == Shape(row.shape.nodes) and row.seed == 1
    ]


def growth(rows: Sequence[Row]) -> str:
    """Return the table of processor seconds by number of nodes."""
    tools = list(dict.fromkeys(row.tool for row in rows))
    shown = {tool: {r.shape.nodes: r for r in _typical(rows, tool)} for tool in tools}
    lines = [["nodes", *(word for t in tools for word in (t, f"{t}, other"))]]
    for nodes in sorted({nodes for actual in shown.values() for nodes in actual}):
        line = [f"{nodes:,}"]
        for tool in tools:
            row = shown[tool].get(nodes)
            line.append(_seconds([row.ours]) if row else "")
            line.append(_seconds([row.theirs]) if row and row.theirs else "")
        lines.append(line)
    return table(lines)


def picture(rows: Sequence[Row]) -> str:
    """Return the growth as a picture."""
    panels = []
    for tool in dict.fromkeys(row.tool for row in rows):
        shown = _typical(rows, tool)
        ours = [(row.shape.nodes, row.ours) for row in shown]
        others = [(row.shape.nodes, row.theirs) for row in shown if row.theirs]
        lines = [
            plot.Line("ours", *_points(ours)),
            plot.Line(OTHER, *_points(others)),
        ]
        panels.append(plot.Panel(tool, lines))
    return plot.svg(panels, "nodes, ten DRBD instances each", "processor seconds")


_Points = list[tuple[float, float]]


def _points(sides: Sequence[tuple[int, Side]]) -> tuple[_Points, _Points]:
    """Return where answers came, and where programs were ended."""
    ordered = sorted(sides, key=lambda pair: pair[0])
    answered = [(x, side.cpu_s) for x, side in ordered if side.seconds is not None]
    ended = [(x, side.cpu_s) for x, side in ordered if side.seconds is None]
    return answered, ended
