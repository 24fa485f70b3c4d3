"""The collectors: names, categories, and how each one collects its data."""

import shutil
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants.protocols import mond
from ganeti.base.process import SAFE_PATH
from ganeti.node.collectors import (
    diagnosis,
    disk_stats,
    drbd_status,
    processors,
    volumes,
    xen,
)
from ganeti.node.collectors.reports import Kind
from ganeti.node.collectors.sources import Sources

PROC_STAT: Final = "/proc/stat"
PROC_DISKSTATS: Final = "/proc/diskstats"
PROC_DRBD: Final = "/proc/drbd"
DIAGNOSE: Final = "diagnose"
KVM_RSS: Final = "kvm-inst-rss"
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
        sample = processors.parse(sources.read(PROC_STAT))
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


class Collector(NamedTuple):
    """One collector.

    Attributes:
        name: as on the wire and in the configuration.
        category: None for the default one.
        kind: of its reports.
        collect: returns the data; None for a collector with samples.
        sampler: creates the samples of a collector that needs them.
        is_applicable: returns whether this node has what it looks at.
    """

    name: str
    category: str | None
    kind: Kind
    collect: Callable[[Sources], Any] | None = None
    sampler: Callable[[], Sampler] | None = None
    is_applicable: Callable[[Sources], bool] = lambda _sources: True


def _drbd(sources: Sources) -> Any:
    try:
        text = sources.read(PROC_DRBD)
    except FileNotFoundError as err:
        raise errors.OpExecError(
            f"{PROC_DRBD} does not exist: the module of DRBD 8 is not loaded"
        ) from err
    return drbd_status.parse(text, sources.minor_owners())


def _volumes(sources: Sources) -> Any:
    return volumes.parse(sources.ask("volumes", ""), sources.volume_owners())


def _xen_status(sources: Sources) -> Any:
    domains = xen.parse_list(sources.ask("domains", ""))
    uptimes = xen.parse_uptime(sources.ask("uptimes", ""))
    primaries, _secondaries = sources.instances()
    return xen.instance_status(primaries, domains, uptimes)


def _diagnose(sources: Sources) -> Any:
    name = sources.diagnose_name()
    if not name:
        return diagnosis.in_order()
    try:
        return diagnosis.parse(sources.ask("diagnose", name))
    except errors.OpExecError as err:
        return diagnosis.in_order(str(err))


def _has_xen(sources: Sources) -> bool:
    return not _XEN.isdisjoint(sources.hypervisors())


def _has_drbd(sources: Sources) -> bool:
    try:
        sources.read(PROC_DRBD)
    except OSError:
        return False
    return True


COLLECTORS: Final = (
    Collector(
        mond.DATA_COLLECTOR_C_P_U_LOAD, None, Kind.PERFORMANCE, sampler=_Processors
    ),
    Collector(
        mond.DATA_COLLECTOR_DISK_STATS,
        "storage",
        Kind.PERFORMANCE,
        lambda sources: disk_stats.parse(sources.read(PROC_DISKSTATS)),
    ),
    Collector(
        mond.DATA_COLLECTOR_DRBD,
        "storage",
        Kind.STATUS,
        _drbd,
        is_applicable=_has_drbd,
    ),
    Collector(
        mond.DATA_COLLECTOR_INST_STATUS,
        "instance",
        Kind.STATUS,
        _xen_status,
        is_applicable=_has_xen,
    ),
    Collector(
        mond.DATA_COLLECTOR_LV,
        "storage",
        Kind.PERFORMANCE,
        _volumes,
        is_applicable=lambda _sources: bool(shutil.which("lvs", path=SAFE_PATH)),
    ),
    Collector(
        mond.DATA_COLLECTOR_XEN_CPU_LOAD,
        None,
        Kind.PERFORMANCE,
        sampler=_Domains,
        is_applicable=_has_xen,
    ),
    Collector(
        KVM_RSS,
        None,
        Kind.PERFORMANCE,
        lambda sources: sources.ask("guests", ""),
        is_applicable=lambda sources: "kvm" in sources.hypervisors(),
    ),
    Collector(DIAGNOSE, "node", Kind.STATUS, _diagnose),
)
