"""Data collectors and their constants."""

from typing import Final

DATA_COLLECTOR_NAMES: Final = (
    "cpu-avg-load",
    "diskstats",
    "drbd",
    "inst-status-xen",
    "lv",
    "xen-cpu-avg-load",
)
#: Collectors that configurations of Ganeti 3 do not list; active unless switched off.
FURTHER_COLLECTOR_NAMES: Final = ("diagnose", "kvm-inst-rss")
DATA_COLLECTOR_C_P_U_LOAD: Final = "cpu-avg-load"
DATA_COLLECTOR_DISK_STATS: Final = "diskstats"
DATA_COLLECTOR_DRBD: Final = "drbd"
DATA_COLLECTOR_LV: Final = "lv"
DATA_COLLECTOR_INST_STATUS: Final = "inst-status-xen"
DATA_COLLECTOR_XEN_CPU_LOAD: Final = "xen-cpu-avg-load"
DATA_COLLECTOR_PARAMETER_INTERVAL: Final = "interval"
DATA_COLLECTOR_STATE_ACTIVE: Final = "active"
DATA_COLLECTORS_ENABLED_NAME: Final = "enabled_data_collectors"
DATA_COLLECTORS_INTERVAL_NAME: Final = "data_collector_interval"
MOND_TIME_INTERVAL: Final = 5
#: Seconds between config reads from confd.
MOND_CONFIG_TIME_INTERVAL: Final = 15
MOND_DEFAULT_CATEGORY: Final = "default"
CPUAVGLOAD_BUFFER_SIZE: Final = 150
#: Seconds.
CPUAVGLOAD_WINDOW_SIZE: Final = 600
