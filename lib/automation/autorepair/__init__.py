"""Automatic repair carried out over LUXI: reads the cluster, sets tags, submits jobs.

``ganeti.decisions.repair`` decides; nothing here does. ``harep`` and the watcher are
its callers, which bring the connection, the clock and the reporting of messages. The
state of repairs is in the tags of the instances alone.
"""

from ganeti.automation.autorepair.cluster_view import ClusterView, load
from ganeti.automation.autorepair.recorder import Recorder
from ganeti.automation.autorepair.run import RepairRun, exclusive, summary
from ganeti.automation.autorepair.tag_changes import (
    LogReporter,
    Reporter,
    RunSettings,
)

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
