"""Metrics of the master for Prometheus, made from the numbers of the master daemon.

Names and labels are documented in doc/monitoring.rst. The numbers are asked for with
each request; nothing but the capacity is kept between two of them.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ganeti.automation.maintenance.capacity import Room
from ganeti.base import errors

_log = logging.getLogger(__name__)

#: Calls a method of the master daemon.
Call = Callable[[str, Sequence[Any]], Any]


class MasterMetrics(Collector):
    """The metrics of the master."""

    def __init__(self, call: Call, room: Callable[[], Room | None]) -> None:
        """Prepare.

        Args:
            call: calls the master daemon.
            room: returns the last known capacity.
        """
        self._call = call
        self._room = room

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics are known when the master daemon answers."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; without an answer only that the master daemon is down."""
        up = GaugeMetricFamily("ganeti_master_up", "whether the master daemon answers")
        try:
            numbers = self._call("QueryMetrics", [])
        except errors.RequestError as err:
            _log.warning("metrics: the master daemon has none: %s", err)
            up.add_metric([], 1)
            yield up
            return
        except (errors.GenericError, OSError) as err:
            _log.warning("metrics: the master daemon does not answer: %s", err)
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        try:
            families = [
                *_queue(numbers),
                *_locks(numbers["locks"]),
                *_calls(numbers["calls"]),
                *_objects(numbers),
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            # A master daemon of another release, during an upgrade.
            _log.warning("metrics: the master daemon's are of another form: %r", err)
            return
        yield from families
        if (room := self._room()) is not None:
            yield from _capacity(room)


def _gauge(name: str, text: str, rows: Mapping[str, float], label: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in sorted(rows.items()):
        family.add_metric([value], number)
    return family


def _queue(numbers: Mapping[str, Any]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "ganeti_jobs", "unfinished jobs", labels=["status", "opcode"]
    )
    for status, opcode, count in numbers["jobs"]:
        family.add_metric([status, opcode], count)
    yield family
    queue = numbers["queue"]
    for name, text in (
        ("ganeti_queue_unfinished", "jobs that have not ended"),
        ("ganeti_queue_running", "jobs that a worker executes"),
        ("ganeti_queue_workers", "threads that execute jobs"),
    ):
        yield GaugeMetricFamily(
            name, text, value=queue[name.removeprefix("ganeti_queue_")]
        )
    yield CounterMetricFamily(
        "ganeti_jobs_submitted", "jobs since the cluster began", value=queue["last_id"]
    )


def _locks(rows: Sequence[Sequence[Any]]) -> Iterator[Metric]:
    held = {level: count for level, count, _waiting in rows}
    waits = {level: waiting for level, _count, waiting in rows}
    yield _gauge("ganeti_locks_held", "locks in use", held, "level")
    yield _gauge("ganeti_lock_waits", "waits for locks", waits, "level")


def _calls(rows: Sequence[Sequence[Any]]) -> Iterator[Metric]:
    times = SummaryMetricFamily(
        "ganeti_node_call_seconds", "duration of calls of nodes", labels=["procedure"]
    )
    failed = CounterMetricFamily(
        "ganeti_node_call_failures", "nodes without a good answer", labels=["procedure"]
    )
    for procedure, count, failures, seconds in rows:
        times.add_metric([procedure], count_value=count, sum_value=seconds)
        failed.add_metric([procedure], failures)
    yield times
    yield failed


def _objects(numbers: Mapping[str, Any]) -> Iterator[Metric]:
    yield _gauge(
        "ganeti_incidents", "incidents by state", numbers["incidents"], "state"
    )
    yield _gauge("ganeti_nodes", "nodes by flag", numbers["nodes"], "flag")
    yield _gauge(
        "ganeti_instances", "instances by wanted state", numbers["instances"], "state"
    )
    yield GaugeMetricFamily(
        "ganeti_automation_frozen",
        "whether automatons are frozen",
        value=int(numbers["is_frozen"]),
    )
    yield GaugeMetricFamily(
        "ganeti_configuration_revision", "revision", value=numbers["revision"]
    )
    yield from _deaths(numbers)


def _deaths(numbers: Mapping[str, Any]) -> Iterator[Metric]:
    yield _gauge(
        "ganeti_node_deaths",
        "nodes that do not answer, by phase",
        numbers.get("node_deaths", {}),
        "phase",
    )
    yield _gauge(
        "ganeti_node_deaths_refused",
        "nodes that do not answer and about which nothing is done, by reason",
        numbers.get("refused_deaths", {}),
        "reason",
    )
    yield GaugeMetricFamily(
        "ganeti_nodes_fenced",
        "nodes that were fenced within the last hour",
        value=numbers.get("fenced", 0),
    )


def _capacity(room: Room) -> Iterator[Metric]:
    yield _gauge(
        "ganeti_capacity_instances",
        "further instances of the usual size that fit",
        {room.template: room.instances},
        "disk_template",
    )
    yield GaugeMetricFamily(
        "ganeti_capacity_timestamp_seconds",
        "when nodes were asked for the capacity",
        value=room.time,
    )


def exposition(
    call: Call, room: Callable[[], Room | None] = lambda: None
) -> Callable[[str], tuple[str, bytes]]:
    """Return a function of an Accept header: content type and content."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MasterMetrics(call, room))

    def content(accept: str) -> tuple[str, bytes]:
        encode, kind = choose_encoder(accept)
        return kind, encode(registry)

    return content
