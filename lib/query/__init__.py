"""Questions about everything in the cluster, answered from a snapshot and live data.

A field is one row of a table: name, title, kind, text, how to get it, and which live
data it needs. `query` answers; `describe` lists fields; `legacy` is the older form.
Nothing here changes anything, and how questions arrive does not belong here.
"""

from ganeti.query.engine import RESOURCES, Answer, asks_nodes, describe, legacy, query
from ganeti.query.jobs import job_values, parse_job_id
from ganeti.query.model import ClusterFacts, Jobs, Sources
from ganeti.query.status import instance_status

__all__ = [
    "RESOURCES",
    "Answer",
    "ClusterFacts",
    "Jobs",
    "Sources",
    "asks_nodes",
    "describe",
    "instance_status",
    "job_values",
    "legacy",
    "parse_job_id",
    "query",
]
