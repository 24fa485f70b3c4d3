"""Queries of all objects of a cluster, answered from a snapshot and live data.

A field is one row of a table: name, title, kind, text, its getter, and the live data
that it needs. `query` answers; `describe` lists fields; `legacy` is the older
form, and `objects` the one of the remote API. `page` answers with a part of a list.
Queries change nothing. The protocols of queries do not belong here.
"""

from ganeti.master.query.encoded import EncodedLists
from ganeti.master.query.engine import (
    RESOURCES,
    Answer,
    asks_nodes,
    describe,
    legacy,
    objects,
    query,
)
from ganeti.master.query.instance_live import instance_status
from ganeti.master.query.jobs import job_values, parse_job_id
from ganeti.master.query.model import ClusterFacts, Jobs, Sources
from ganeti.master.query.pages import Orders, Wanted, page
from ganeti.master.query.search import SearchIndex

__all__ = [
    "RESOURCES",
    "Answer",
    "ClusterFacts",
    "EncodedLists",
    "Jobs",
    "Orders",
    "SearchIndex",
    "Sources",
    "Wanted",
    "asks_nodes",
    "describe",
    "instance_status",
    "job_values",
    "legacy",
    "objects",
    "page",
    "parse_job_id",
    "query",
]
