"""``hbal --search`` compared with the greedy plan: how often and how much better.

Both plan the same small clusters of several kinds, generated from seeds; the CPU time
is that of the plan alone.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Iterator

from fakes import made_clusters
from fakes.made_clusters import Shape
from ganeti.decisions.htools.balance import greedy
from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state

SHAPES = (
    Shape(6, per_node=4),
    Shape(8, per_node=5, mixed=True, odd=True),
    Shape(8, per_node=5, tags="exclusion"),
    Shape(8, per_node=5, template="sharedfile"),
    Shape(12, per_node=5, offline=1),
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Result of a plan."""

    length: int
    score: float
    cpu_s: float


def plan(cluster: Cluster, *, pairs: bool) -> Plan:
    """Compute a complete plan."""
    now = node_state.derive(cluster)
    start = time.process_time()
    steps = list(greedy.plan(now, greedy.BalanceGoal(pairs=pairs), MoveOptions()))
    return Plan(len(steps), components.value(now), time.process_time() - start)


def both(shape: Shape, count: int) -> Iterator[tuple[Plan, Plan]]:
    """Plan clusters of one shape with and without pairs of moves."""
    for seed in range(1, count + 1):
        made = made_clusters.make(shape, seed).text()
        cluster = text.load(made, str(shape)).only_group(0)
        yield plan(cluster, pairs=False), plan(cluster, pairs=True)


def line(shape: Shape, actual: list[tuple[Plan, Plan]]) -> str:
    """Return the summary line of a shape's plans."""
    gains = [100 * (1 - two.score / one.score) for one, two in actual]
    better = [gain for gain in gains if gain > 0]
    moves = [statistics.mean(pair[n].length for pair in actual) for n in (0, 1)]
    cpu = [statistics.mean(pair[n].cpu_s for pair in actual) for n in (0, 1)]
    middle = statistics.median(better) if better else 0.0
    return (
        f"{shape!s:40} {len(better):3d} of {len(actual):3d} {middle:8.1f} %"
        f" {max(gains):6.1f} % {moves[0]:6.1f} {moves[1]:6.1f}"
        f" {cpu[0]:7.2f} s {cpu[1]:6.2f} s"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser("test/bench/run search", description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="clusters per shape")
    count = parser.parse_args().count
    print(
        f"{'clusters':40} {'better':>10} {'median':>10} {'most':>8}"
        f" {'moves':>6} {'search':>6} {'CPU':>9} {'search':>8}"
    )
    for shape in SHAPES:
        print(line(shape, list(both(shape, count))), flush=True)


if __name__ == "__main__":
    main()
