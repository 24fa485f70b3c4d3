"""Metrics of a node for Prometheus, made from the reports of its collectors.

Names and labels are documented in doc/monitoring.rst. Values are read for each request;
nothing is kept between two of them.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as Source

from ganeti.base import clock
from ganeti.base.constants import versions
from ganeti.base.constants.protocols import mond
from ganeti.daemons.mond import agent as agents
from ganeti.daemons.mond.agent import Agent
from ganeti.node.collectors.collector_table import DIAGNOSE, KVM_RSS
from ganeti.node.collectors.diagnosis import NodeHealth
from ganeti.node.storage.heartbeats import State

_SECTOR_BYTES: Final = 512
_MILLISECONDS: Final = 1000
#: Member of a disk's counters -> name, text, factor.
_DISK_COUNTERS: Final[dict[str, tuple[str, str, float]]] = {
    "readsNum": ("reads", "completed reads", 1),
    "writes": ("writes", "completed writes", 1),
    "secRead": ("read_bytes", "bytes read", _SECTOR_BYTES),
    "secWritten": ("written_bytes", "bytes written", _SECTOR_BYTES),
    "timeIO": ("io_seconds", "time with requests in progress", 1 / _MILLISECONDS),
}
_DRBD_GAUGES: Final = {
    "outOfSync": ("ganeti_drbd_out_of_sync_bytes", 1024),
    "pending": ("ganeti_drbd_pending_requests", 1),
}


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
            make = _MAKERS.get(collector.name)
            if make is None:
                continue
            data = agents.data_of(self._agent.report(collector))
            if data is not None:
                yield from make(data)
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


def _processors(data: Mapping[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "ganeti_node_cpus", "processors online", value=data["cpu_number"]
    )
    yield GaugeMetricFamily(
        "ganeti_node_cpu_load",
        "busy processors, the average of the last ten minutes",
        value=data["cpu_total"],
    )


def _disks(data: list[Mapping[str, Any]]) -> Iterator[Metric]:
    for member, (name, text, factor) in _DISK_COUNTERS.items():
        family = CounterMetricFamily(
            f"ganeti_disk_{name}", f"block devices: {text}", labels=["device"]
        )
        for row in data:
            family.add_metric([row["name"]], row[member] * factor)
        yield family


def _volumes(data: list[Mapping[str, Any]]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "ganeti_volume_size_bytes",
        "size of logical volumes",
        labels=["vg", "volume", "instance"],
    )
    sizes = {
        (row["vg_name"], row["name"], row["instance"] or ""): row["size"]
        for row in data
    }
    for labels, size in sizes.items():
        family.add_metric(labels, size or 0)
    yield family


def _drbd(data: Mapping[str, Any]) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "ganeti_drbd_state",
        "state of DRBD devices; the value is always 1",
        labels=["minor", "instance", "connection", "role", "disk", "peer_disk"],
    )
    gauges = {
        member: GaugeMetricFamily(name, "of DRBD devices", labels=["minor", "instance"])
        for member, (name, _factor) in _DRBD_GAUGES.items()
    }
    synced = GaugeMetricFamily(
        "ganeti_drbd_synced_ratio",
        "part of a running synchronization that is done",
        labels=["minor", "instance"],
    )
    for device in data["deviceInfos"]:
        minor, instance = str(device["minor"]), device.get("instance") or ""
        labels = ("localRole", "localState", "remoteState")
        texts = [device.get(name) or "" for name in labels]
        state.add_metric([minor, instance, device["connectionState"], *texts], 1)
        for member, (_name, factor) in _DRBD_GAUGES.items():
            value = device.get("perfIndicators", {}).get(member)
            if value is not None:
                gauges[member].add_metric([minor, instance], value * factor)
        if "syncStatus" in device:
            ratio = device["syncStatus"]["percentage"] / 100
            synced.add_metric([minor, instance], ratio)
    yield from (state, *gauges.values(), synced)


def _guests(data: Mapping[str, int]) -> Iterator[Metric]:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    resident = GaugeMetricFamily(
        "ganeti_instance_resident_bytes",
        "resident memory of the process of a running instance",
        labels=["instance"],
    )
    for name, pages in data.items():
        resident.add_metric([name], pages * page_bytes)
    yield resident
    yield GaugeMetricFamily(
        "ganeti_node_running_instances", "running KVM instances", value=len(data)
    )


def _domains(data: Mapping[str, Any]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "ganeti_instance_cpu_load",
        "processors that a Xen domain keeps busy",
        labels=["instance"],
    )
    for name, load in data.items():
        family.add_metric([name], load)
    yield family


def _instances(data: Mapping[str, Any]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "ganeti_instance_status",
        "0 as wanted, 1 being repaired, 2 unknown, 4 bad",
        labels=["instance"],
    )
    for row in data["instances"]:
        family.add_metric([row["name"]], row["status"]["code"])
    yield family


def _health(data: Mapping[str, Any]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "ganeti_node_health",
        "what the diagnose command of the node wants: 1 for the present state",
        labels=["state"],
    )
    for state in NodeHealth:
        family.add_metric([state.value], int(data.get("status") == state.value))
    yield family


_MAKERS: Final[dict[str, Callable[[Any], Iterator[Metric]]]] = {
    mond.DATA_COLLECTOR_C_P_U_LOAD: _processors,
    mond.DATA_COLLECTOR_DISK_STATS: _disks,
    mond.DATA_COLLECTOR_DRBD: _drbd,
    mond.DATA_COLLECTOR_INST_STATUS: _instances,
    mond.DATA_COLLECTOR_LV: _volumes,
    mond.DATA_COLLECTOR_XEN_CPU_LOAD: _domains,
    KVM_RSS: _guests,
    DIAGNOSE: _health,
}
