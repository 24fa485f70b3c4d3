"""Automatic repair carried out over LUXI: reads the cluster, sets tags, submits jobs.

``ganeti.repair`` decides; nothing here does. ``harep`` and the watcher are its callers,
which bring the connection, the clock and the reporting of messages. The state of
repairs is in the tags of the instances alone.
"""

from ganeti.autorepair.cluster_view import ClusterView, load
from ganeti.autorepair.exclusion import exclusive
from ganeti.autorepair.recorder import Recorder
from ganeti.autorepair.reporting import LogReporter, summary
from ganeti.autorepair.run import RepairRun, Reporter, RunSettings

__all__ = [
    "ClusterView",
    "LogReporter",
    "Recorder",
    "RepairRun",
    "Reporter",
    "RunSettings",
    "exclusive",
    "load",
    "summary",
]
