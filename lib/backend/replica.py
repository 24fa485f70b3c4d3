"""Procedures of the store's copies on master candidates, see `ganeti.store.replica`."""

from typing import Any

from ganeti import errors
from ganeti.backend.master import is_master_running
from ganeti.backend.registry import LocalNode, procedure


@procedure("store_apply")
def store_apply(node: LocalNode, term: int, base: int, data: str) -> dict[str, Any]:
    """Take over change-sets that follow the copy's revision."""
    return node.replica.apply(term, base, data)


@procedure("store_install")
def store_install(node: LocalNode, term: int, data: str) -> dict[str, Any]:
    """Replace the copy."""
    return node.replica.install(term, data)


@procedure("store_status")
def store_status(node: LocalNode) -> dict[str, Any]:
    """Return revision, term and digest of the copy, and the highest term seen.

    A new master needs the last: a term that brought no change is in no copy.
    """
    return {**node.replica.status(), "seen": node.seen_term()}


@procedure("store_purge")
def store_purge(node: LocalNode) -> None:
    """Remove the copy; the master's own store is not one.

    Raises:
        OpPrereqError: the master daemon runs here.
    """
    if is_master_running(node):
        raise errors.OpPrereqError(
            "the store is in use: the master daemon runs here", "wrong_state"
        )
    node.replica.purge()
