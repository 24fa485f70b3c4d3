"""The monitoring agent of a node: its settings, its collectors, and HTTP answers.

confd answers with the settings; without an answer the last one stays in force, so a
node keeps reporting while the master is down.

A collector with samples takes them in the background. Any other collector runs when
somebody asks for its report, but not again within its interval, and never twice at
once: many readers do not make a node slower.

Collectors read `ganeti.node.collectors.sources.Sources`, whose reads that need root go
to a small process of its own (`ganeti.node.collectors.helper`); the daemon itself has
an ordinary user. The reports and paths are those of Ganeti's monitoring agent, see
ganeti-mond(8); names and labels of the metrics for Prometheus are documented in
doc/monitoring.rst.
"""

import dataclasses
import functools
import logging
import math
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as Source

from ganeti.base import clock, errors
from ganeti.base.clock import Clock
from ganeti.base.constants import disks, versions
from ganeti.base.constants.protocols import confd, mond
from ganeti.node.collectors import reports
from ganeti.node.collectors.collector_table import COLLECTORS, Collector, Sampler
from ganeti.node.collectors.metrics import Family
from ganeti.node.collectors.reports import NoDiagnosis
from ganeti.node.collectors.sources import Sources
from ganeti.node.storage.heartbeats import State
from ganeti.protocols.confd.client import ConfdClient

_log = logging.getLogger(__name__)

_MICROSECONDS: Final = 1_000_000
_DIAGNOSE_POINTER: Final = "/cluster/diagnose_data_collector_filename"
_DEATH_POINTER: Final = "/cluster/node_death"
_TEMPLATES_POINTER: Final = "/cluster/enabled_disk_templates"
#: Limits of an interval in seconds, whatever the configuration says.
_SHORTEST_S: Final = 0.5
_LONGEST_S: Final = 86400.0
#: Seconds to wait for confd.
_PATIENCE_S: Final = 5.0


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the cluster.

    Attributes:
        inactive: collectors that are switched off.
        intervals: seconds between two collections, by name.
        diagnose: name of the diagnose command, empty for none.
        heartbeats: kinds of shared storage that get heartbeats; none while the cluster
            does not handle deaths of nodes.
    """

    inactive: frozenset[str] = frozenset()
    intervals: Mapping[str, float] = dataclasses.field(default_factory=dict)
    diagnose: str = ""
    heartbeats: tuple[str, ...] = ()

    def interval_s(self, name: str) -> float:
        """Return the interval of a collector."""
        return self.intervals.get(name, float(mond.MOND_TIME_INTERVAL))


def parse(
    collectors: Any, diagnose: Any, node_death: Any = None, templates: Any = None
) -> Settings:
    """Return the settings in answers of confd; what is malformed is left out."""
    inactive, intervals = set(), {}
    rows = collectors if isinstance(collectors, Mapping) else {}
    for name, row in rows.items():
        if not isinstance(row, Mapping):
            continue
        if row.get("active") is False:
            inactive.add(name)
        micros = row.get("interval")
        if isinstance(micros, int) and micros > 0:
            seconds = micros / _MICROSECONDS
            intervals[name] = min(max(seconds, _SHORTEST_S), _LONGEST_S)
    name = diagnose if isinstance(diagnose, str) else ""
    return Settings(frozenset(inactive), intervals, name, _kinds(node_death, templates))


def _kinds(node_death: Any, templates: Any) -> tuple[str, ...]:
    if node_death is not True or not isinstance(templates, Sequence):
        return ()
    return tuple(kind for kind in disks.DTS_SHARED_DIRS if kind in templates)


class Follower:
    """Reads the settings again and again. `present` is for all threads."""

    def __init__(self, connect: Callable[[], ConfdClient]) -> None:
        """Begin with the defaults.

        Args:
            connect: returns a client of the present candidates with the present key.
        """
        self._connect = connect
        self.present = Settings()
        self._shown = ""

    def refresh(self) -> bool:
        """Ask confd; keep the settings and return false if there is no answer."""
        try:
            client = self._connect()
            collectors = _answer(client, confd.CONFD_REQ_DATA_COLLECTORS, None)
            others = [
                _answer(client, confd.CONFD_REQ_CONFIG_QUERY, pointer)
                for pointer in (_DIAGNOSE_POINTER, _DEATH_POINTER, _TEMPLATES_POINTER)
            ]
        except (errors.GenericError, OSError) as err:
            self._show(f"settings stay as they were: {err}")
            return False
        before, self.present = self.present, parse(collectors, *others)
        self._show("settings are those of the cluster")
        if before.diagnose != self.present.diagnose:
            _log.info("diagnose command: %s", self.present.diagnose or "none")
        if before.heartbeats != self.present.heartbeats:
            kinds = ", ".join(self.present.heartbeats)
            _log.info("heartbeats on shared storage: %s", kinds or "none")
        return True

    def _show(self, text: str) -> None:
        """Log a state once."""
        if text != self._shown:
            _log.info("%s", text)
            self._shown = text


def _answer(client: ConfdClient, kind: int, query: Any) -> Any:
    result = client.ask(kind, query, timeout_s=_PATIENCE_S)
    if result.reply is None:
        raise errors.ConfdClientError("no answer of confd")
    if not result.is_ok:
        # The path does not exist in the configuration of an older master.
        if kind == confd.CONFD_REQ_CONFIG_QUERY:
            return None
        raise errors.ConfdClientError(f"confd: error {result.reply.answer!r:.80}")
    return result.reply.answer


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
            item.name: _Slot(item, item.code.sampler() if item.code.sampler else None)
            for item in collectors
        }

    def active(self) -> list[Collector]:
        """Return the collectors that are switched on and apply to this node."""
        inactive = self._settings().inactive
        return [
            slot.collector
            for name, slot in self._slots.items()
            if name not in inactive and slot.collector.code.is_applicable(self._sources)
        ]

    def named(self, category: str, name: str) -> Collector | None:
        """Return an active collector, None if there is none."""
        for collector in self.active():
            wanted = collector.row.category or mond.DEFAULT_CATEGORY
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
        collect = collector.code.collect
        assert collect is not None
        data = self._try(slot, lambda: collect(self._sources))
        if slot.problem and data is None:
            data = {"error": slot.problem}
            if collector.row.kind is mond.Kind.STATUS:
                status = reports.Status(reports.Code.UNKNOWN, slot.problem)
                data = reports.with_status(data, status)
        return self._made(collector, data)

    def _made(self, collector: Collector, data: Any) -> dict[str, Any]:
        return reports.report(
            collector.name,
            collector.row.category,
            collector.row.kind,
            data,
            self._clock.time(),
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
    category = collector.row.category or mond.DEFAULT_CATEGORY
    return [collector.name, category, int(collector.row.kind)]


def data_of(report: Mapping[str, Any]) -> Any:
    """Return the data of a report, None if its collection failed."""
    data = report["data"]
    return None if isinstance(data, Mapping) and "error" in data else data


_MOND_LATEST_API_VERSION: Final = 1


_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
#: Text that a reader may have signed together with the diagnosis, so that an old
#: answer, or that of another node, does not pass for this one.
_CHALLENGE: Final = re.compile(r"[0-9a-zA-Z-]{1,64}")
_encode: Final = msgspec.json.Encoder().encode

#: Returns content type and content of the metrics, for an Accept header.
Metrics = Callable[[str], tuple[str, bytes]]


class _Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Application:
    """Answers requests; many threads call it at once."""

    def __init__(
        self,
        agent: Agent,
        *,
        hostname: str,
        key: Callable[[], bytes],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        """Prepare to answer.

        Args:
            agent: has the reports.
            hostname: of this node, for answers to challenges.
            key: returns the cluster's key, which signs the diagnosis.
            metrics: see `Metrics`.
            clock: times of signatures.
        """
        self._agent = agent
        self._hostname = hostname
        self._key = key
        self._metrics = metrics
        self._clock = clock

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a request."""
        path = str(environ.get("PATH_INFO", ""))
        try:
            kind, body = self._answer(environ, path)
            status = HTTPStatus.OK
        except _Refused as err:
            kind, body, status = _TEXT, f"{err}\n".encode(), err.status
        except Exception as err:  # noqa: BLE001 - logged, and the server goes on
            _log.exception("request of %.200r failed", path)
            kind, status = _TEXT, HTTPStatus.INTERNAL_SERVER_ERROR
            body = f"{type(err).__name__}; the log has more\n".encode()
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET"))
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _answer(self, environ: dict[str, Any], path: str) -> tuple[str, bytes]:
        if environ.get("REQUEST_METHOD") != "GET":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is possible")
        if path == "/metrics":
            return self._metrics(str(environ.get("HTTP_ACCEPT", "")))
        return _JSON, _encode(self._value(environ, path))

    def _value(self, environ: dict[str, Any], path: str) -> Any:
        if path == "/":
            return [_MOND_LATEST_API_VERSION]
        if path in ("/1", "/1/"):
            return None
        if path == "/1/list/collectors":
            return [as_listed(item) for item in self._agent.active()]
        if path == "/1/report/all":
            return [self._agent.report(item) for item in self._agent.active()]
        if not path.startswith("/1/report/"):
            raise _Refused(HTTPStatus.NOT_FOUND, "no such resource")
        category, _slash, name = path.removeprefix("/1/report/").partition("/")
        collector = self._agent.named(category, name)
        if collector is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "no such collector, or not active")
        report = self._agent.report(collector)
        query = str(environ.get("QUERY_STRING", ""))
        challenge = urllib.parse.parse_qs(query).get("challenge", [""])[0]
        # Any other report is signed for those alone who ask for that.
        if name != mond.DIAGNOSE and not challenge:
            return report
        return self._sealed(report, challenge)

    def _sealed(self, report: dict[str, Any], challenge: str) -> dict[str, str]:
        if challenge:
            if not _CHALLENGE.fullmatch(challenge):
                raise _Refused(
                    HTTPStatus.BAD_REQUEST,
                    "challenge: wanted 1 to 64 letters, digits and dashes",
                )
            report = report | {"node": self._hostname, "challenge": challenge}
            if isinstance(report["data"], NoDiagnosis):
                report["problem"] = report["data"].problem
        # The answer without a challenge is signed as it always was. Of the other one,
        # the caller chooses a part of the text.
        purpose = confd.PURPOSE_REPORT if challenge else b""
        now = self._clock.time()
        return reports.sealed(report, self._key(), now, purpose=purpose)


def exposition(source: Source) -> Callable[[str], tuple[str, bytes]]:
    """Return a function of an Accept header: content type and content."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(source)

    def content(accept: str) -> tuple[str, bytes]:
        encode, kind = choose_encoder(accept)
        return kind, encode(registry)

    return content


class NodeMetrics(Source):
    """The metrics of this node."""

    def __init__(
        self, agent: Agent, beats: Callable[[], State | None] = lambda: None
    ) -> None:
        """Prepare.

        Args:
            agent: has the collectors.
            beats: returns the state of the heartbeats of this node, if it has any.
        """
        self._agent = agent
        self._beats = beats

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics of a node depend on its collectors."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        info = GaugeMetricFamily("ganeti_info", "release", labels=["release"])
        info.add_metric([versions.RELEASE_VERSION], 1)
        yield info
        for collector in self._agent.active():
            data = data_of(self._agent.report(collector))
            if data is not None:
                yield from map(_metric, collector.code.metrics(data))
        yield from self._health()
        yield from _heartbeats(self._beats())

    def _health(self) -> Iterator[Metric]:
        took = GaugeMetricFamily(
            "ganeti_collector_duration_seconds",
            "duration of the last collection",
            labels=["collector"],
        )
        failures = CounterMetricFamily(
            "ganeti_collector_failures", "failed collections", labels=["collector"]
        )
        up = GaugeMetricFamily(
            "ganeti_collector_up",
            "whether the last collection succeeded",
            labels=["collector"],
        )
        for item in self._agent.health():
            took.add_metric([item.name], item.took_s)
            failures.add_metric([item.name], item.failures)
            up.add_metric([item.name], 0 if item.problem else 1)
        yield from (took, failures, up)


def _metric(family: Family) -> Metric:
    metric: CounterMetricFamily | GaugeMetricFamily
    if family.is_counter:
        metric = CounterMetricFamily(family.name, family.text, labels=family.labels)
    else:
        metric = GaugeMetricFamily(family.name, family.text, labels=family.labels)
    for labels, value in family.samples:
        metric.add_metric(labels, value)
    return metric


def _heartbeats(state: State | None) -> Iterator[Metric]:
    if state is None:
        return
    age = GaugeMetricFamily(
        "ganeti_heartbeat_age_seconds",
        "time since this node wrote its heartbeat to a directory of shared disks",
        labels=["directory"],
    )
    now = clock.SystemClock().monotonic()
    for place, (when, _error) in state.written.items():
        if place:
            age.add_metric([place], now - when if when else math.inf)
    yield age
