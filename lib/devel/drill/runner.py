"""One drill: the fault, the end that it must have, and what proves it."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from ganeti.base import errors
from ganeti.decisions.repair.journal import Decision, Entry
from ganeti.devel.drill import proof
from ganeti.devel.drill.report import Result
from ganeti.devel.drill.scenarios import DRILLS, WATCHED_S, Drill, End
from ganeti.devel.drill.site import GUEST, Site
from ganeti.devel.drill.witness import Witness

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
        self._before: tuple[proof.Boot, ...] = ()
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
        if problem := proof.overlap(boots):
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
                spare = self._site.others(self._site.master)
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
