"""Durability: configuration snapshots, jobs, and their copies on master candidates."""

from ganeti.store.base import (
    DOCUMENT_TABLES,
    Batch,
    Change,
    ChangeSet,
    Document,
    Done,
    Store,
)
from ganeti.store.follower import Follower
from ganeti.store.fork import Fork
from ganeti.store.replica import Replica
from ganeti.store.sqlite import open_master

__all__ = [
    "DOCUMENT_TABLES",
    "Batch",
    "Change",
    "ChangeSet",
    "Document",
    "Done",
    "Follower",
    "Fork",
    "Replica",
    "Store",
    "open_master",
]
