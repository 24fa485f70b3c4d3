"""The agent: when collectors run, and their present reports. For use by many threads.

A collector with samples takes them in the background. Any other collector runs when
somebody asks for its report, but not again within its interval, and never twice at
once: many readers do not make a node slower.
"""

import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.daemons.mond.settings import Settings
from ganeti.node.collectors import reports
from ganeti.node.collectors.collector_table import COLLECTORS, Collector, Sampler
from ganeti.node.collectors.diagnosis import NoDiagnosis
from ganeti.node.collectors.sources import Sources

_log = logging.getLogger(__name__)

#: Seconds between two looks at what is due.
_LONGEST_WAIT_S: Final = 5.0
_FAILURES: Final = (errors.GenericError, OSError, ValueError)


@dataclasses.dataclass
class _Slot:
    """A collector with its last report.

    Attributes:
        lock: held while it collects.
        due_s: monotonic time of the next collection.
        report: the last one.
        problem: why the last collection failed; empty if it did not.
        took_s: duration of the last collection.
        failures: collections that failed so far.
    """

    collector: Collector
    sampler: Sampler | None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    due_s: float = float("-inf")
    report: dict[str, Any] | None = None
    problem: str = ""
    took_s: float = 0.0
    failures: int = 0


@dataclasses.dataclass(frozen=True)
class Health:
    """How a collector does: duration and failures of its collections."""

    name: str
    took_s: float
    failures: int
    problem: str


class Agent:
    """Runs the collectors of this node."""

    def __init__(
        self,
        sources: Sources,
        settings: Callable[[], Settings],
        clock: Clock,
        collectors: Sequence[Collector] = COLLECTORS,
    ) -> None:
        """Prepare to collect.

        Args:
            sources: what collectors read.
            settings: returns the present settings of the cluster.
            clock: times of reports.
            collectors: all of them.
        """
        self._sources = sources
        self._settings = settings
        self._clock = clock
        self._slots = {
            item.name: _Slot(item, item.sampler() if item.sampler else None)
            for item in collectors
        }

    def active(self) -> list[Collector]:
        """Return the collectors that are switched on and apply to this node."""
        inactive = self._settings().inactive
        return [
            slot.collector
            for name, slot in self._slots.items()
            if name not in inactive and slot.collector.is_applicable(self._sources)
        ]

    def named(self, category: str, name: str) -> Collector | None:
        """Return an active collector, None if there is none."""
        for collector in self.active():
            wanted = collector.category or reports.DEFAULT_CATEGORY
            if (wanted, collector.name) == (category, name):
                return collector
        return None

    def report(self, collector: Collector) -> dict[str, Any]:
        """Return a report that is not older than the collector's interval."""
        slot = self._slots[collector.name]
        with slot.lock:
            now_s = self._clock.monotonic()
            if slot.sampler is not None:
                return self._made(collector, slot.sampler.data())
            if slot.report is None or now_s >= slot.due_s:
                slot.report = self._collected(slot)
                interval_s = self._settings().interval_s(collector.name)
                # From its end: a slow collector must not run without a pause.
                slot.due_s = self._clock.monotonic() + interval_s
            return slot.report

    def health(self) -> list[Health]:
        """Return how each collector does that has run."""
        return [
            Health(name, slot.took_s, slot.failures, slot.problem)
            for name, slot in self._slots.items()
            if slot.due_s != float("-inf")
        ]

    def sample_due(self) -> float:
        """Take the samples that are due; return in how many seconds to call again."""
        wait_s = _LONGEST_WAIT_S
        for collector in self.active():
            slot = self._slots[collector.name]
            if slot.sampler is None:
                continue
            with slot.lock:
                if self._clock.monotonic() >= slot.due_s:
                    self._try(slot, functools.partial(slot.sampler.add, self._sources))
                    interval_s = self._settings().interval_s(collector.name)
                    slot.due_s = self._clock.monotonic() + interval_s
                wait_s = min(wait_s, slot.due_s - self._clock.monotonic())
        return max(0.0, wait_s)

    def _collected(self, slot: _Slot) -> dict[str, Any]:
        collector = slot.collector
        assert collector.collect is not None
        collect = collector.collect
        data = self._try(slot, lambda: collect(self._sources))
        if slot.problem and data is None:
            data = {"error": slot.problem}
            if collector.kind is reports.Kind.STATUS:
                status = reports.Status(reports.Code.UNKNOWN, slot.problem)
                data = reports.with_status(data, status)
        return self._made(collector, data)

    def _made(self, collector: Collector, data: Any) -> dict[str, Any]:
        return reports.report(
            collector.name, collector.category, collector.kind, data, self._clock.time()
        )

    def _try(self, slot: _Slot, work: Callable[[], Any]) -> Any:
        """Return the result, None after a failure; a problem is logged once."""
        begin_s = self._clock.monotonic()
        try:
            value = work()
            problem = value.problem if isinstance(value, NoDiagnosis) else ""
        except _FAILURES as err:
            value, problem = None, str(err) or type(err).__name__
        if problem:
            slot.failures += 1
        if problem != slot.problem:
            level = logging.WARNING if problem else logging.INFO
            _log.log(level, "%s: %s", slot.collector.name, problem or "works")
        slot.problem = problem
        slot.took_s = self._clock.monotonic() - begin_s
        return value


def as_listed(collector: Collector) -> list[Any]:
    """Return a collector's row of the list of collectors."""
    category = collector.category or reports.DEFAULT_CATEGORY
    return [collector.name, category, int(collector.kind)]


def data_of(report: Mapping[str, Any]) -> Any:
    """Return the data of a report, None if its collection failed."""
    data = report["data"]
    return None if isinstance(data, Mapping) and "error" in data else data
