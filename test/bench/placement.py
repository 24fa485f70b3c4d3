"""Placement programs on generated clusters: time, memory and results, compared.

``hail`` places one instance, ``hbal`` computes a whole plan, ``hspace`` computes the
capacity; another implementation's programs get the same files if they are installed.
Prints one line per case, tables of times, and whether each result is at least as good
as the other's; exits with 1 if not. All figures are saved as JSON after each case:
``--resume`` continues from there, ``--minutes`` limits a run, ``--report`` only prints.
"""

import argparse
import dataclasses
import itertools
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence

from beside import cases, measure, records, report
from beside.records import Row, Side

from fakes import made_clusters
from fakes import placement_programs as programs
from fakes.made_clusters import Shape

#: Tool, cluster and seed.
Case = tuple[str, Shape, int]
SIZES = (6, 20, 100, 500, 1000)
OURS_LIMIT_S = 600.0
QUICK_LIMIT_S = 4.0
#: The other programs' time grows at least with this power of the number of nodes.
_LEAST_GROWTH = 2
QUICK = (
    (Shape(6, per_node=4, tight=True), 1),
    (Shape(20), 1),
    (Shape(20, template="sharedfile"), 1),
    (Shape(20, per_node=5, tight=True), 1),
    (Shape(100), 1),
)


class Bench:
    """Runs cases; skips those that would certainly take the other programs too long."""

    def __init__(
        self,
        tools: Sequence[str],
        limit_s: float,
        known: Sequence[Row] = (),
        *,
        our_limit_s: float = OURS_LIMIT_S,
        is_bold: bool = False,
    ) -> None:
        """Keep the settings.

        Args:
            tools: names of programs.
            limit_s: CPU seconds of the other programs.
            known: rows whose results of the other programs are reused.
            our_limit_s: CPU seconds of our programs.
            is_bold: also run cases that are too long only by extrapolation.
        """
        self.tools = [tool for tool in tools if programs.ours(tool)]
        self.limit_s = limit_s
        self.known = {row.case: row for row in known}
        self.our_limit_s, self.is_bold = our_limit_s, is_bold
        self.known_s: dict[tuple[str, Shape], tuple[int, Side, float]] = {}
        for row in known:
            self._remember(row)

    def rows(self, wanted: Sequence[Case]) -> Iterator[Row]:
        """Measure cases."""
        for (shape, seed), several in itertools.groupby(wanted, lambda case: case[1:]):
            made = made_clusters.make(shape, seed)
            for tool, _shape, _seed in several:
                row = self._row(tool, shape, seed, made)
                self._remember(row)
                yield row

    def _remember(self, row: Row) -> None:
        if row.theirs:
            place, actual = (row.tool, _kind(row.shape)), row.theirs
            nodes, known, _limit_s = self.known_s.get(place, (0, actual, 0.0))
            if (row.shape.nodes, actual.cpu_s) >= (nodes, known.cpu_s):
                self.known_s[place] = row.shape.nodes, actual, row.limit_s

    def _row(self, tool: str, shape: Shape, seed: int, made: made_clusters.Made) -> Row:
        known = self.known.get((tool, shape, seed))
        with tempfile.TemporaryDirectory() as directory:
            words = cases.prepare(tool, shape, made, pathlib.Path(directory))

            def side(program: str, limit_s: float) -> Side:
                run = measure.best([program, *words], limit_s)
                result = cases.judge(tool, shape, made, run)
                return Side(run.seconds, run.cpu_s, run.peak_mib, result)

            ours = side(programs.ours(tool) or "", self.our_limit_s)
            if known and (known.theirs or known.why_not.startswith("not run")):
                theirs, why_not = known.theirs, known.why_not
                limit_s = known.limit_s
            else:
                other, limit_s = programs.theirs(tool), self.limit_s
                why_not = self._hopeless(tool, shape) if other else "not installed"
                theirs = side(other, limit_s) if other and not why_not else None
        verdict = cases.verdict(tool, ours.result, theirs.result) if theirs else ""
        return Row(tool, shape, seed, limit_s, ours, theirs, why_not, verdict)

    def _hopeless(self, tool: str, shape: Shape) -> str:
        place = (tool, _kind(shape))
        if place not in self.known_s:
            return ""
        nodes, actual, limit_s = self.known_s[place]
        if nodes >= shape.nodes:
            return ""
        if actual.seconds is None:
            return f"not run: over {limit_s:g} s at {nodes} nodes"
        least_s = actual.cpu_s * (shape.nodes / nodes) ** _LEAST_GROWTH
        if least_s < self.limit_s or self.is_bold:
            return ""
        return f"not run: {actual.cpu_s:.1f} s at {nodes} nodes"


def _kind(shape: Shape) -> Shape:
    """Return the properties of a cluster other than its size."""
    return dataclasses.replace(shape, nodes=0, offline=0)


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="test/bench/run placement",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="a few cases, two minutes")
    which.add_argument(
        "--growth", action="store_true", help="only the cases of the growth table"
    )
    which.add_argument(
        "--report", action="store_true", help="measure nothing, print the saved figures"
    )
    parser.add_argument("--sizes", help="numbers of nodes, separated by commas")
    parser.add_argument(
        "--tools", default=",".join(cases.TOOLS), help="separated by commas"
    )
    parser.add_argument(
        "--limit", type=float, default=60.0, help="CPU seconds of the other programs"
    )
    parser.add_argument(
        "--our-limit",
        type=float,
        default=OURS_LIMIT_S,
        help="CPU seconds of our programs",
    )
    parser.add_argument(
        "--bold",
        action="store_true",
        help="run the other programs also where extrapolation speaks against it",
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="skip the cases of the JSON file"
    )
    again.add_argument(
        "--ours",
        action="store_true",
        help="take the other programs' results from the JSON file",
    )
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="start no case after this time"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="write a plot of the growth as SVG"
    )
    parser.add_argument(
        "--install-other", action="store_true", help="install the other programs first"
    )
    chosen = parser.parse_args()
    chosen.tools = chosen.tools.split(",")
    unknown = sorted(set(chosen.tools) - set(cases.TOOLS))
    if unknown:
        parser.error(
            f"--tools: {', '.join(unknown)}: known are {','.join(cases.TOOLS)}"
        )
    try:
        chosen.sizes = [int(n) for n in (chosen.sizes or "").split(",") if n]
    except ValueError:
        parser.error(f"--sizes: wanted numbers with commas, found {chosen.sizes!r}")
    if chosen.json is None:
        name = "quick" if chosen.quick else "all"
        chosen.json = pathlib.Path(f"build/bench-placement-{name}.json")
    return chosen


def listed(chosen: argparse.Namespace, known: Iterable[Row]) -> list[Case]:
    """Return the selected cases, small clusters first."""
    if chosen.report:
        return []
    sizes = chosen.sizes or SIZES
    if chosen.quick:
        actual = [case for case in QUICK if not chosen.sizes or case[0].nodes in sizes]
    elif chosen.growth:
        actual = [(Shape(size), 1) for size in sizes]
    else:
        actual = [case for size in sorted(sizes) for case in cases.shapes(size)]
    wanted = [(tool, *case) for case in actual for tool in chosen.tools]
    there = {row.case for row in known} if chosen.resume else set()
    return [case for case in wanted if case not in there]


def print_missing(tools: Sequence[str]) -> None:
    """Print the programs that are missing."""
    for tool in tools:
        if not programs.ours(tool):
            print(f"{tool}: not built here, skipped")
        elif not programs.theirs(tool):
            print(
                f"{tool}: the other program is not installed (package {programs.PACKAGE},"
                " --install-other), only ours is measured"
            )


def main() -> int:
    """Run the bench; return the exit code."""
    chosen = options()
    if chosen.install_other:
        try:
            programs.install()
        except (OSError, subprocess.SubprocessError) as err:
            print(f"cannot install {programs.PACKAGE}: {err}", file=sys.stderr)
            return 2
    limit_s = min(chosen.limit, QUICK_LIMIT_S) if chosen.quick else chosen.limit
    kept = chosen.resume or chosen.report or chosen.ours
    try:
        rows = {row.case: row for row in (records.read(chosen.json) if kept else [])}
    except (OSError, ValueError, KeyError, TypeError) as err:
        print(f"{chosen.json}: no figures of this bench: {err!r}", file=sys.stderr)
        return 2
    if not chosen.report:
        print_missing(chosen.tools)
    wanted, end = listed(chosen, rows.values()), time.monotonic() + 60 * chosen.minutes
    bench = Bench(
        chosen.tools,
        limit_s,
        list(rows.values()),
        our_limit_s=chosen.our_limit,
        is_bold=chosen.bold or chosen.growth,
    )
    for row in bench.rows(wanted):
        rows[row.case] = row
        records.save(list(rows.values()), chosen.json)
        reported = row.verdict or row.why_not
        print(f"{row.tool} {row.shape}, seed {row.seed}: {reported}", file=sys.stderr)
        if time.monotonic() > end:
            print("time is up", file=sys.stderr)
            break
    return print_results(list(rows.values()), chosen)


def print_results(rows: list[Row], chosen: argparse.Namespace) -> int:
    """Print the results; return the exit code."""
    if not rows:
        print(f"no figures in {chosen.json}", file=sys.stderr)
        return 2
    print(report.cases(rows))
    for tool in dict.fromkeys(row.tool for row in rows):
        print(f"\n{tool}, processor seconds by nodes:\n\n{report.kinds(rows, tool)}")
    print(
        "\nProcessor seconds by number of nodes, ten DRBD instances each:\n\n"
        f"{report.growth(rows)}\n\n{report.verdicts(rows)}"
    )
    if chosen.plot:
        pathlib.Path(chosen.plot).write_text(report.picture(rows))
    return int(any(report.is_broken(row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
