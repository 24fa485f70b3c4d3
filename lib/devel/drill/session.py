"""The command ``vcluster drill``: which drills, how often, and its output."""

import argparse
import itertools
import json
import random
from collections.abc import Callable, Iterator

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.devel.drill import report
from ganeti.devel.drill.report import Result
from ganeti.devel.drill.runner import Trial
from ganeti.devel.drill.scenarios import DRILLS, PAIRABLE
from ganeti.devel.drill.site import Site
from ganeti.devel.vcluster.layout import Layout
from ganeti.devel.vcluster.nodes import NodeControl

Load = Callable[[], tuple[Layout, NodeControl]]


def run(args: argparse.Namespace, load: Load, say: Callable[[str], None]) -> int:
    """Play the drills of a command line; return the exit code.

    Raises:
        OpPrereqError: there is no such drill, or the cluster is not made for drills.
        OpExecError: the cluster could not be brought back after a drill.
    """
    if args.list:
        for name, drill in DRILLS.items():
            say(f"{name:<16} {drill.text}")
        return exitcodes.EXIT_SUCCESS
    names = _names(args)
    if args.pairs:
        say(f"seed {args.seed}")
    site = Site(*load())
    results = []
    with site.prepared():
        for result in _results(site, names, args.rounds):
            results.append(result)
            if not args.json:
                say(result.line)
    counts = report.summary(results)
    is_slow = args.goal is not None and (counts["p95_s"] or 0.0) > args.goal
    if args.json:
        rows = msgspec.to_builtins(results)
        say(json.dumps({"drills": rows, "summary": counts}, indent=1))
    else:
        say(report.summary_text(counts))
        if is_slow:
            say(f"slower than the goal of {args.goal:g} s")
    return exitcodes.EXIT_FAILURE if counts["failed"] or is_slow else 0


def _names(args: argparse.Namespace) -> list[str]:
    """Return the drills to play, with ``--pairs`` so many random pairs of them."""
    names = [part for name in args.drills for part in name.split("+")]
    unknown = [name for name in names if name not in DRILLS]
    if unknown:
        raise errors.OpPrereqError(
            f"drill {unknown[0]}: not known; drills are {', '.join(DRILLS)}",
            ecodes.ECODE_INVAL,
        )
    if alone := [n for n in args.drills if "+" in n and {*n.split("+")} - {*PAIRABLE}]:
        raise errors.OpPrereqError(
            f"drill {alone[0]}: drills that end their fault can be played at once,"
            f" these are {', '.join(PAIRABLE)}",
            ecodes.ECODE_INVAL,
        )
    if args.rounds < 1:
        raise errors.OpPrereqError(
            f"--rounds: wanted at least 1, found {args.rounds}", ecodes.ECODE_INVAL
        )
    if args.pairs:
        pairs = ["+".join(pair) for pair in itertools.combinations(PAIRABLE, 2)]
        chance = random.Random(args.seed)  # noqa: S311 - a repeatable choice
        return chance.sample(pairs, min(args.pairs, len(pairs)))
    return list(args.drills or DRILLS)


def _results(site: Site, names: list[str], rounds: int) -> Iterator[Result]:
    for number in range(1, rounds + 1):
        for name in names:
            yield Trial(site, name, number).play()
