"""Change the library in small ways and print which changes no test notices.

Each change is written to a copy of the tree, where the unit and property tests that execute
the changed statement run until one fails. A sample is drawn per package; the same seed draws
the same sample from the same files. The first run in a tree measures which tests execute
which line, which takes some minutes.
"""

import argparse
import concurrent.futures
import dataclasses
import math
import pathlib
import queue
import sys
import tempfile

from mutants import changes, reach, trees

TOP = pathlib.Path(__file__).parents[2]
STORED = TOP / "build" / "mutants"
#: As a package: the whole library, so that larger packages get more of the sample.
WHOLE = "all"


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome for one mutant; ``is_partial``: not all its tests ran."""

    mutant: changes.Mutant
    outcome: str
    tests: int
    is_partial: bool


def parse_arguments(arguments):
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="test/run mutants", description=__doc__)
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="below lib, for example http or hypervisor/kvm; each one by default;"
        " 'all' draws one sample from the whole library",
    )
    parser.add_argument("--sample", type=int, default=40, help="mutants per package")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample")
    parser.add_argument("--workers", type=int, default=2, help="runs at the same time")
    parser.add_argument(
        "--budget",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="of tests per mutant; a result from fewer tests is marked with '+'",
    )
    parser.add_argument(
        "--near",
        action="store_true",
        help="run only the test modules that are named after the packages; much faster,"
        " and the shares are lower bounds",
    )
    return parser.parse_args(arguments)


def within(tests, seconds, budget):
    """Return the first tests whose measured time fits in a budget, at least one."""
    chosen, spent = [], 0.0
    for test in tests:
        spent += seconds[test]
        if chosen and spent > budget:
            break
        chosen.append(test)
    return chosen


#: A run may take this many times as long as its tests took when they were measured, and
#: some seconds more. A change that ends in an endless wait counts as noticed.
SLOWER = 5
START_S = 20


def limits(tests, seconds):
    """Return how many seconds a run of tests may take, and how many one of them."""
    longest = max((seconds[test] for test in tests), default=0)
    whole = sum(seconds[test] for test in tests)
    return START_S + SLOWER * whole, START_S / 2 + SLOWER * longest


def try_mutant(mutant, idle, reached, budget):
    """Run the tests of one mutant in an idle copy of the tree."""
    tests = reached.tests_of(mutant)
    if not tests:
        return Result(mutant, trees.UNNOTICED, 0, is_partial=False)
    chosen = within(tests, reached.seconds, budget)
    tree = idle.get()
    try:
        with tree.changed(mutant):
            outcome = tree.run(chosen, *limits(chosen, reached.seconds))
    finally:
        idle.put(tree)
    return Result(mutant, outcome, len(chosen), len(chosen) < len(tests))


def check_unchanged(mutants, idle, reached, budget):
    """Return the output of tests of some mutants that fail without a change, if any.

    In that case a failure would show nothing about a mutant.
    """
    tests = {test for mutant in mutants for test in reached.tests_of(mutant)}
    chosen = within(sorted(tests), reached.seconds, budget)
    tree = idle.get()
    try:
        allowed = limits(chosen, reached.seconds)
        if not chosen or tree.run(chosen, *allowed) == trees.UNNOTICED:
            return ""
        return tree.log()
    finally:
        idle.put(tree)


def difference(mutant):
    """Return the changed lines before and after."""
    before = (TOP / mutant.path).read_text()
    after = mutant.apply(before)
    old, new = before.splitlines(), after.splitlines()
    first = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    rest = min(len(old), len(new)) - first
    last = next((i for i in range(1, rest) if old[-i] != new[-i]), rest)
    removed = [line.strip() for line in old[first : len(old) - last + 1]]
    added = [line.strip() for line in new[first : len(new) - last + 1]]
    return " ".join(removed), " ".join(added)


def show(result):
    """Print one unnoticed mutant."""
    mutant = result.mutant
    before, after = difference(mutant)
    mark = "+" if result.is_partial else ""
    print(
        f"  {mutant.path}:{mutant.line}: {mutant.operator}, {result.tests}{mark} tests"
    )
    print(f"    - {before}")
    print(f"    + {after}")


def interval(noticed, tried):
    """Return the bounds of the share of all mutants with a confidence of 95 %.

    Wilson's interval, which also fits shares near 0 and 1.
    """
    if not tried:
        return 0.0, 1.0
    z = 1.96
    share = noticed / tried
    middle = share + z * z / (2 * tried)
    half = z * math.sqrt(share * (1 - share) / tried + z * z / (4 * tried * tried))
    scale = 1 + z * z / tried
    return (middle - half) / scale, (middle + half) / scale


def summary(name, results, positions):
    """Print the share of one package and return it."""
    noticed = sum(result.outcome != trees.UNNOTICED for result in results)
    slow = sum(result.outcome == trees.TIMED_OUT for result in results)
    share = noticed / len(results) if results else 1.0
    timed_out = f", {slow} by running out of time" if slow else ""
    low, high = interval(noticed, len(results))
    print(
        f"{name}: {noticed} of {len(results)} noticed, {share:.0%}"
        f" (of {positions} positions{timed_out}); with 95 % confidence"
        f" {low:.0%} to {high:.0%}",
        flush=True,
    )
    return share


def main(arguments):
    """Run the command."""
    options = parse_arguments(arguments)
    names = [name.strip("/") for name in options.packages] or changes.packages(TOP)
    if WHOLE in names and (len(names) > 1 or options.near):
        problem = "'all' is the whole library; it goes with no package and no --near"
        print(f"test/run mutants: {problem}", file=sys.stderr)
        return 2
    try:
        samples = {
            name: changes.sample(
                TOP, "" if name == WHOLE else name, options.sample, options.seed
            )
            for name in names
        }
    except LookupError as err:
        print(f"test/run mutants: {err.args[0]}", file=sys.stderr)
        return 2
    STORED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [
            trees.Tree(TOP, f"{folder}/{number}") for number in range(options.workers)
        ]
        try:
            near = names if options.near else None
            reached = measured(copies[0], options.workers, near)
            return run(samples, copies, reached, options)
        finally:
            for tree in copies:
                tree.close()


def measured(tree, workers, near=None):
    """Return which tests execute which line, measured again where files changed.

    Args:
        tree: copy of the tree to measure in.
        workers: number of test processes.
        near: packages whose own test modules alone count; all test modules if None.
    """
    now = reach.digests(TOP)
    if near is None:
        path = STORED / "reach.json"
    else:
        now = reach.near(now, near)
        first = sorted({name.split("/")[0] for name in near})
        path = STORED / f"reach-{'-'.join(first)[:100]}.json"
    reached = reach.Reach.load(path)
    modules = reached.update(tree, now, workers, lambda: reached.save(path))
    reached.save(path)
    reached.read_imports(TOP)
    if modules:
        print(f"measured {len(modules)} test modules", file=sys.stderr)
    return reached


def run(samples, copies, reached, options):
    """Try all samples and print the results."""
    print(f"seed {options.seed}, {options.sample} mutants per package")
    idle = queue.Queue()
    for tree in copies:
        idle.put(tree)
    weighted = total = 0
    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        for name, (positions, mutants) in samples.items():
            if log := check_unchanged(mutants, idle, reached, options.budget):
                text = f"{name}: its tests fail without a change:\n{log}"
                print(text, file=sys.stderr)
                return 1
            results = list(
                pool.map(
                    lambda m: try_mutant(m, idle, reached, options.budget), mutants
                )
            )
            unnoticed = [r for r in results if r.outcome == trees.UNNOTICED]
            for result in sorted(
                unnoticed, key=lambda r: (r.mutant.path, r.mutant.line)
            ):
                show(result)
            weighted += summary(name, results, positions) * positions
            total += positions
    print(
        f"total: {weighted / max(total, 1):.1%}, packages weighted by their positions"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
