"""Durability: configuration snapshots, jobs, and their copies on master candidates.

`open_master` is the writing end, `Replica` a candidate's copy, `Follower` reads only.
What records mean, and how to reach a candidate, does not belong here.
"""

from ganeti.store.base import (
    DOCUMENT_TABLES,
    Batch,
    Change,
    ChangeSet,
    CopyState,
    Document,
    Done,
    Store,
    read_typed,
)
from ganeti.store.copies.follower import Follower, check_pages, read_snapshot
from ganeti.store.copies.replica import Replica
from ganeti.store.engine import Engine
from ganeti.store.fork import Fork
from ganeti.store.numbers import CommitSettings
from ganeti.store.schema import VersionError
from ganeti.store.sqlite import open_master

__all__ = [
    "DOCUMENT_TABLES",
    "Batch",
    "Change",
    "ChangeSet",
    "CommitSettings",
    "CopyState",
    "Document",
    "Done",
    "Engine",
    "Follower",
    "Fork",
    "Replica",
    "Store",
    "VersionError",
    "check_pages",
    "open_master",
    "read_snapshot",
    "read_typed",
]
