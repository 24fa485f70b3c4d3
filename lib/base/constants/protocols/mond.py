"""Data collectors: a description of each one, and constants of their settings.

All readers of the names, the help and the manual pages read `COLLECTORS`; the code of a
collector is in ``lib/node/collectors``.
"""

import enum
from typing import Final, NamedTuple

#: Category in paths of collectors that have none.
DEFAULT_CATEGORY: Final = "default"


class Kind(enum.IntEnum):
    """Kind of a collector, as on the wire."""

    PERFORMANCE = 0
    STATUS = 1


class Row(NamedTuple):
    """The description of one collector.

    Attributes:
        name: as on the wire and in the configuration.
        text: what it reports, for the help of ``mon-collector``.
        page: what it reports, in ganeti-mond(8).
        category: None for the default one.
        kind: of its reports.
        tool_page: sentence in mon-collector(8); the text if it is empty.
        is_average: its samples over time exist only inside the daemon.
        is_added: configurations of Ganeti 3 do not list it; active unless switched off.
    """

    name: str
    text: str
    page: str
    category: str | None = None
    kind: Kind = Kind.PERFORMANCE
    tool_page: str = ""
    is_average: bool = False
    is_added: bool = False


DATA_COLLECTOR_C_P_U_LOAD: Final = "cpu-avg-load"
DATA_COLLECTOR_DISK_STATS: Final = "diskstats"
DATA_COLLECTOR_DRBD: Final = "drbd"
DATA_COLLECTOR_LV: Final = "lv"
DATA_COLLECTOR_INST_STATUS: Final = "inst-status-xen"
DATA_COLLECTOR_XEN_CPU_LOAD: Final = "xen-cpu-avg-load"
DIAGNOSE: Final = "diagnose"
#: In the order of ganeti-mond(8).
ROWS: Final = (
    Row(
        DATA_COLLECTOR_C_P_U_LOAD,
        "average load of the processors",
        "busy part of each processor, the average of ten minutes",
        is_average=True,
    ),
    Row(
        DATA_COLLECTOR_DISK_STATS,
        "counters of block devices",
        "counters of the kernel for each block device",
        "storage",
    ),
    Row(
        DATA_COLLECTOR_LV,
        "logical volumes",
        "logical volumes, where LVM is installed, with their instances",
        "storage",
    ),
    Row(
        DATA_COLLECTOR_DRBD,
        "state of DRBD devices",
        "state of DRBD devices, where its module is loaded, with their instances",
        "storage",
        Kind.STATUS,
    ),
    Row(
        "kvm-inst-rss",
        "resident memory of KVM instances",
        "resident memory of each KVM instance, in pages",
        is_added=True,
    ),
    Row(
        "load-average",
        "load averages and tasks of the node",
        "load averages of 1, 5 and 15 minutes, number of running and of all tasks",
        tool_page="Load averages and the number of tasks, from */proc/loadavg*.",
        is_added=True,
    ),
    Row(
        DATA_COLLECTOR_INST_STATUS,
        "state of Xen domains",
        "where Xen is enabled",
        "instance",
        Kind.STATUS,
    ),
    Row(
        DATA_COLLECTOR_XEN_CPU_LOAD,
        "average load of Xen domains",
        "where Xen is enabled",
        is_average=True,
    ),
    Row(
        DIAGNOSE,
        "what the node's diagnose command says",
        "what the administrator's own command says about the node",
        "node",
        Kind.STATUS,
        "Run the diagnose command of the cluster, if this node allows it.",
        is_added=True,
    ),
)
#: In the order of reports: those of Ganeti 3 by name, then the others.
COLLECTORS: Final = (
    *sorted(row for row in ROWS if not row.is_added),
    *(row for row in ROWS if row.is_added),
)
DATA_COLLECTOR_NAMES: Final = tuple(r.name for r in COLLECTORS if not r.is_added)
FURTHER_COLLECTOR_NAMES: Final = tuple(sorted(r.name for r in ROWS if r.is_added))
MOND_TIME_INTERVAL: Final = 5
CPUAVGLOAD_BUFFER_SIZE: Final = 150
#: Seconds.
CPUAVGLOAD_WINDOW_SIZE: Final = 600
