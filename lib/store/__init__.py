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

__all__ = [
    "DOCUMENT_TABLES",
    "Batch",
    "Change",
    "ChangeSet",
    "Document",
    "Done",
    "Store",
]
