"""The collectors: how each one of `mond.COLLECTORS` collects its data."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants.protocols import mond
from ganeti.base.process import SAFE_PATH
from ganeti.node.collectors import block_devices, processors, reports, xen
from ganeti.node.collectors.metrics import Family, single
from ganeti.node.collectors.sources import Sources

PROC_STAT: Final = "/proc/stat"
PROC_LOADAVG: Final = "/proc/loadavg"
PROC_DISKSTATS: Final = "/proc/diskstats"
PROC_DRBD: Final = "/proc/drbd"
_XEN: Final = frozenset({"xen-pvm", "xen-hvm"})


class Sampler:
    """A collector's own samples over time; `add` is called again and again."""

    def add(self, sources: Sources) -> None:
        """Take a sample."""
        raise NotImplementedError

    def data(self) -> Any:
        """Return the data of the samples so far."""
        raise NotImplementedError


class _Processors(Sampler):
    def __init__(self) -> None:
        self._window = processors.LoadWindow()

    def add(self, sources: Sources) -> None:
        sample = processors.parse_processors(sources.read(PROC_STAT))
        self._window.add(time.monotonic(), sample)

    def data(self) -> Any:
        return self._window.data()


class _Domains(Sampler):
    def __init__(self) -> None:
        self._loads = xen.DomainLoads()

    def add(self, sources: Sources) -> None:
        domains = xen.parse_list(sources.ask("domains", ""))
        self._loads.add(time.monotonic(), domains)

    def data(self) -> Any:
        return self._loads.data()


class Code(NamedTuple):
    """The code of one collector.

    Attributes:
        collect: returns the data; None for a collector with samples.
        metrics: returns the metrics of the data.
        sampler: creates the samples of a collector that needs them.
        is_applicable: returns whether this node has what it looks at.
    """

    collect: Callable[[Sources], Any] | None = None
    metrics: Callable[[Any], Iterable[Family]] = lambda _data: ()
    sampler: Callable[[], Sampler] | None = None
    is_applicable: Callable[[Sources], bool] = lambda _sources: True


class Collector(NamedTuple):
    """One collector: its description and its code."""

    row: mond.Row
    code: Code

    @property
    def name(self) -> str:
        """Return the name on the wire and in the configuration."""
        return self.row.name


def _drbd(sources: Sources) -> Any:
    try:
        text = sources.read(PROC_DRBD)
    except FileNotFoundError as err:
        raise errors.OpExecError(
            f"{PROC_DRBD} does not exist: the module of DRBD 8 is not loaded"
        ) from err
    return block_devices.parse_drbd(text, sources.minor_owners())


def _volumes(sources: Sources) -> Any:
    return block_devices.parse_volumes(
        sources.ask("volumes", ""), sources.volume_owners()
    )


def _xen_status(sources: Sources) -> Any:
    domains = xen.parse_list(sources.ask("domains", ""))
    uptimes = xen.parse_uptime(sources.ask("uptimes", ""))
    primaries, _secondaries = sources.instances()
    return xen.instance_status(primaries, domains, uptimes)


def _diagnose(sources: Sources) -> Any:
    name = sources.diagnose_name()
    if not name:
        return reports.in_order()
    try:
        return reports.parse_diagnosis(sources.ask("diagnose", name))
    except errors.OpExecError as err:
        return reports.in_order(str(err))


def _has_xen(sources: Sources) -> bool:
    return not _XEN.isdisjoint(sources.hypervisors())


def _has_drbd(sources: Sources) -> bool:
    try:
        sources.read(PROC_DRBD)
    except OSError:
        return False
    return True


def _metrics_of_guests(data: Mapping[str, int]) -> Iterator[Family]:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    yield Family(
        "ganeti_instance_resident_bytes",
        "resident memory of the process of a running instance",
        [((name,), pages * page_bytes) for name, pages in data.items()],
        ("instance",),
    )
    yield single("ganeti_node_running_instances", "running KVM instances", len(data))


#: Name in `mond.COLLECTORS` -> code.
_CODE: Final = {
    mond.DATA_COLLECTOR_C_P_U_LOAD: Code(
        metrics=processors.metrics_of_processors, sampler=_Processors
    ),
    mond.DATA_COLLECTOR_DISK_STATS: Code(
        lambda sources: block_devices.parse_counters(sources.read(PROC_DISKSTATS)),
        block_devices.metrics_of_counters,
    ),
    mond.DATA_COLLECTOR_LV: Code(
        _volumes,
        block_devices.metrics_of_volumes,
        is_applicable=lambda _sources: bool(shutil.which("lvs", path=SAFE_PATH)),
    ),
    mond.DATA_COLLECTOR_DRBD: Code(
        _drbd, block_devices.metrics_of_drbd, is_applicable=_has_drbd
    ),
    "kvm-inst-rss": Code(
        lambda sources: sources.ask("guests", ""),
        _metrics_of_guests,
        is_applicable=lambda sources: "kvm" in sources.hypervisors(),
    ),
    "load-average": Code(
        lambda sources: processors.parse_load(sources.read(PROC_LOADAVG)),
        processors.metrics_of_load,
    ),
    mond.DATA_COLLECTOR_INST_STATUS: Code(
        _xen_status, xen.metrics_of_status, is_applicable=_has_xen
    ),
    mond.DATA_COLLECTOR_XEN_CPU_LOAD: Code(
        metrics=xen.metrics_of_loads, sampler=_Domains, is_applicable=_has_xen
    ),
    mond.DIAGNOSE: Code(_diagnose, reports.metrics_of_health),
}
COLLECTORS: Final = tuple(Collector(row, _CODE[row.name]) for row in mond.COLLECTORS)
