"""The command ``vcluster drill``: drills, their results and its output.

A drill is a fault, the end that it must have, and what proves that.
"""

import argparse
import contextlib
import itertools
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.decisions.repair.journal import Decision, Entry
from ganeti.devel.drill import witness
from ganeti.devel.drill.scenarios import DRILLS, PAIRABLE, WATCHED_S, Drill, End
from ganeti.devel.drill.site import GUEST, Site, prepared
from ganeti.devel.drill.witness import Witness
from ganeti.devel.vcluster.layout import Layout
from ganeti.devel.vcluster.nodes import NodeControl

#: Wide enough for the names of all drills.
_NAME_WIDTH: Final = 16


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one drill.

    Attributes:
        drill: its name.
        round: number of the round, from 1.
        node: the node that it was about.
        recovery_s: seconds from the fault until the guest ran again; None if it was
            left alone, or did not come back.
        boots: boots of the guest during the drill, the one before it included.
        journal: entries of the decision journal about the node.
        jobs: jobs that were acknowledged during the drill.
        still_s: longest time in seconds for which the guest did not count.
        facts: other observations.
        problems: what was wrong; empty if the drill passed.
    """

    drill: str
    round: int
    node: str
    recovery_s: float | None = None
    boots: int = 0
    journal: int = 0
    jobs: int = 0
    still_s: float = 0.0
    facts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The result as one line."""
        state = "FAILED" if self.problems else "passed"
        texts = [*self.problems, *self.facts]
        if self.recovery_s is not None:
            texts.insert(0, f"running again after {self.recovery_s:.1f} s")
        if self.still_s:
            texts.append(f"longest pause {self.still_s:.1f} s")
        return f"{self.drill:<{_NAME_WIDTH}} {self.node}: {state}: {'; '.join(texts)}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Return counts, and percentiles of the seconds of recovery if there are any."""
    times = [each.recovery_s for each in results if each.recovery_s is not None]
    counts: dict[str, Any] = {
        "drills": len(results),
        "failed": sum(bool(each.problems) for each in results),
        "recoveries": len(times),
    }
    for name, value in (("p50_s", 50), ("p95_s", 95), ("longest_s", 100)):
        counts[name] = round(percentile(times, value), 2) if times else None
    return counts


def summary_text(counts: dict[str, Any]) -> str:
    """Return the summary as a text."""
    text = f"{counts['drills']} drills, {counts['failed']} failed"
    if not counts["recoveries"]:
        return text
    return (
        f"{text}; {counts['recoveries']} recoveries: p50 {counts['p50_s']:.1f} s, p95"
        f" {counts['p95_s']:.1f} s, longest {counts['longest_s']:.1f} s"
    )


#: Most seconds until a guest of a dead node runs again.
RECOVERY_S: Final = 180.0
#: Seconds between two runs of the watcher on all nodes; cron waits five minutes.
_CRON_S: Final = 15.0
#: Seconds without a step of the counter until a guest that should run is rebooted.
_SPIN_S: Final = 30.0
#: Least step of the counter of a guest that runs.
_STEPS: Final = 2


class Trial:
    """One drill while it is played."""

    def __init__(self, site: Site, name: str, number: int) -> None:
        """Take a drill, or two that are played at once: ``NAME+NAME``."""
        self._site = site
        self._name = name
        self._number = number
        self._drills: list[Drill] = [DRILLS[each] for each in name.split("+")]
        self._drill = self._drills[0]
        self._node = self._drill.victim(site)
        self._witness = Witness(site)
        self._before: tuple[witness.Boot, ...] = ()
        self._began = 0.0
        self._facts: list[str] = []
        self._problems: list[str] = []
        self._recovery_s: float | None = None

    def play(self) -> Result:
        """Play it; bring the cluster back.

        Raises:
            GenericError: the cluster cannot be brought back.
        """
        self._await_guest(1)
        self._before = self._site.boots()
        self._site.watch()
        since = time.time()
        entries: list[Entry] = []
        with self._witness:
            try:
                with self._judged():
                    self._began = time.monotonic()
                    self._act()
                    self._END[self._drill.end](self)
                if self._drill.end is not End.SETTLED:
                    entries = self._site.entries(self._node, since)
                    self._judge_journal(entries)
            finally:
                self._site.take_back()
        with self._judged():
            self._judge_outside()
        boots = self._site.boots()
        if problem := witness.overlap(boots):
            self._problems.append(problem)
        return Result(
            drill=self._name,
            round=self._number,
            node=self._node.short,
            recovery_s=self._recovery_s,
            boots=len(boots) - len(self._before) + 1,
            journal=len(entries),
            jobs=len(self._witness.jobs),
            still_s=round(self._witness.still_s, 1),
            facts=tuple(self._facts),
            problems=(*self._problems, *self._witness.problems),
        )

    def _act(self) -> None:
        """Make all faults, then go on with them; they are about different nodes."""
        nodes = [self._node]
        for drill in self._drills[1:]:
            node = drill.victim(self._site)
            if node in nodes:
                spare = self._site.layout.others(self._site.master)
                node = next(each for each in spare if each not in nodes)
            nodes.append(node)
        parts = list(zip(self._drills, nodes, strict=True))
        for drill, node in parts:
            drill.begin(self._site, node)
        for drill, node in reversed(parts):
            drill.act(self._site, node)

    def _judge_outside(self) -> None:
        """Check what the witness has seen, and that the cluster is as before."""
        self._site.until("all jobs ended", lambda: not self._witness.unfinished())
        self._witness.judge_starts()
        self._site.verify()
        self._judge_guest()
        self._facts.append(f"{len(self._witness.jobs)} jobs kept")

    def _judge_guest(self) -> None:
        """Check that the guest counts after a person has moved it; help it if not.

        A live migration may have left it spinning, which only `gnt-instance list -o
        +stuck` shows.
        """
        before = self._site.boots()[-1]
        if not self._site.await_if(lambda: self._site.boots()[-1] != before, _SPIN_S):
            self._problems.append(
                f"the guest does not count on {self._site.guest()[0].short} after its"
                f" live migration; its emulator is {self._site.emulator_state()}"
            )
            self._site.reboot_guest()

    @contextlib.contextmanager
    def _judged(self) -> Iterator[None]:
        """Note errors of a block as problems."""
        try:
            yield
        except (errors.GenericError, OSError) as err:
            text = err if isinstance(err, OSError) or not err.args else err.args[0]
            self._problems.append(str(text))

    def _await_guest(self, count: int) -> None:
        """Wait until boot number ``count`` of the guest has counted."""

        def has_counted() -> bool:
            boots = self._site.boots()
            return len(boots) >= count and boots[-1].counter >= _STEPS

        self._site.until(f"instance {GUEST} runs", has_counted, RECOVERY_S)

    # Ends
    def _settled(self) -> None:
        last = self._site.boots()[-1]
        due = time.monotonic() + _CRON_S

        def counts() -> bool:
            nonlocal due
            boot = self._site.boots()[-1]
            before = last.counter if boot.boot_id == last.boot_id else 0
            if boot.counter >= before + _STEPS:
                return True
            if time.monotonic() >= due:
                self._site.look_after()
                due = time.monotonic() + _CRON_S
            return False

        if not self._site.await_if(counts, RECOVERY_S):
            raise errors.OpExecError(
                f"not within {RECOVERY_S:g} s: the guest counts again; its emulator is"
                f" {self._site.emulator_state()}"
            )
        self._facts.append(f"counts on {self._site.guest()[0].short}")
        if self._site.boots()[-1].boot_id != self._before[-1].boot_id:
            self._recovery_s = self._witness.still_s

    def _moved(self) -> None:
        self._await_guest(len(self._before) + 1)
        self._recovery_s = time.monotonic() - self._began
        site = self._site
        if site.control.is_powered(self._node):
            self._problems.append("the node is still on")
        left = site.control.processes_on(self._node)
        if left:
            self._problems.append(f"{len(left)} processes of the node still run")
        target, status = site.guest()
        if target == self._node or status != "running":
            self._problems.append(f"the guest is {status} on {target.short}")
        count = len(site.boots()) - len(self._before)
        if count == 1:
            self._facts.append(f"fenced, one start, on {target.short}")
        else:
            self._problems.append(f"wanted one start of the guest, found {count}")

    def _refused(self) -> None:
        limit = self._drill.limit

        def is_refused() -> bool:
            death = self._site.deaths().get(self._node.name)
            return death is not None and death.limit == limit

        self._site.until(f"the master refuses ({limit})", is_refused)
        self._lives(f"left alone ({limit})")

    def _alive(self) -> None:
        deadline = time.monotonic() + WATCHED_S

        def is_over() -> bool:
            if self._node.name in self._site.deaths():
                self._problems.append("the node is regarded as dead")
                return True
            return time.monotonic() > deadline

        self._site.until("the node was watched", is_over)
        self._lives("nobody doubts that the node is alive")

    def _lives(self, fact: str) -> None:
        """Check that the guest has gone on where it was."""
        boots = self._site.boots()
        if len(boots) != len(self._before):
            count = len(boots) - len(self._before)
            self._problems.append(f"wanted no start of the guest, found {count}")
        if not self._site.control.is_powered(self._node):
            self._problems.append("the node was switched off")

        def counts_on() -> bool:
            return self._site.boots()[-1].counter >= boots[-1].counter + _STEPS

        self._site.until("the guest goes on", counts_on)
        self._facts.append(fact)

    _END: Final[Any] = {
        End.MOVED: _moved,
        End.REFUSED: _refused,
        End.ALIVE: _alive,
        End.SETTLED: _settled,
    }

    def _judge_journal(self, entries: list[Entry]) -> None:
        """Check that the journal has the decisions and their reasons."""
        items = [
            item
            for entry in entries
            for item in entry.items
            if item.name == self._node.name
        ]
        acts = [
            item for item in items if item.decision is Decision.CHOSEN and item.jobs
        ]
        kinds = {item.action for item in acts}
        limits = {item.limit for item in items if item.decision is Decision.REFUSED}
        if self._drill.end is End.MOVED:
            for action in ("fence", "mark offline"):
                if action not in kinds:
                    self._problems.append(f"the journal has no act {action!r}")
        elif self._drill.end is End.REFUSED and self._drill.limit not in limits:
            self._problems.append(f"the journal has no refusal {self._drill.limit!r}")
        elif self._drill.end is End.ALIVE and acts:
            self._problems.append("the journal has acts about a node that is alive")
        self._facts.append(f"{len(entries)} entries in the journal")


Load = Callable[[], tuple[Layout, NodeControl]]


def run_drills(args: argparse.Namespace, load: Load, say: Callable[[str], None]) -> int:
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
    with prepared(site):
        for result in _results(site, names, args.rounds):
            results.append(result)
            if not args.json:
                say(result.line)
    counts = summary(results)
    is_slow = args.goal is not None and (counts["p95_s"] or 0.0) > args.goal
    if args.json:
        rows = msgspec.to_builtins(results)
        say(json.dumps({"drills": rows, "summary": counts}, indent=1))
    else:
        say(summary_text(counts))
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
