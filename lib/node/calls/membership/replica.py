"""Procedures for the store's copies on candidates; see `copies.replica`."""

from typing import Any

from ganeti.base import errors, memory
from ganeti.decisions.quorum import Term, term_of
from ganeti.node.calls.membership.roles import is_master_running
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.store import choice

#: A term on the wire: its number and owner; the number alone from earlier releases.
WireTerm = int | tuple[int, str]


@procedure("store_promise")
def store_promise(node: LocalNode, term: WireTerm) -> dict[str, Any]:
    """Promise a master term to its owner, and return where the copy stands.

    From now on, calls and change-sets of earlier masters are refused here.
    """
    choice.require_file(node.paths, "store_promise")
    asked = _term(term)
    if node.terms is not None:
        node.terms.admit(asked)
    answer = node.replica.promise(asked)
    if node.terms is not None:
        node.terms.check(asked)
    return answer


@procedure("store_apply")
def store_apply(
    node: LocalNode, term: WireTerm, base: int, data: str
) -> dict[str, Any]:
    """Take over change-sets that follow the copy's revision."""
    choice.require_file(node.paths, "store_apply")
    return node.replica.apply(_term(term), base, data)


@procedure("store_install")
def store_install(node: LocalNode, term: WireTerm, data: str) -> dict[str, Any]:
    """Replace the copy."""
    choice.require_file(node.paths, "store_install")
    try:
        return node.replica.install(_term(term), data)
    finally:
        # It took several times its size, and the allocator would keep that.
        memory.trim()


@procedure("store_status")
def store_status(node: LocalNode) -> dict[str, Any]:
    """Return where the copy stands, and which term it has promised."""
    return node.replica.status()


@procedure("store_changes")
def store_changes(node: LocalNode, revision: int, digest: str) -> str | None:
    """Return the change-sets after a point of the copy's history, null if not kept."""
    return node.replica.changes(revision, digest)


@procedure("store_dump")
def store_dump(node: LocalNode) -> str:
    """Return the whole copy but the archive."""
    text = node.replica.dump()
    memory.trim()
    return text


@procedure("store_scan")
def store_scan(node: LocalNode, table: str, after: str | None) -> str:
    """Return some rows of the archive or of job logs, which follow a key."""
    if table not in {"archive", "joblogs"}:
        raise errors.RpcError(f"store_scan: no table {table!r}")
    return node.replica.scan(table, after)


def _term(value: WireTerm) -> Term:
    try:
        return term_of(value)
    except ValueError as err:
        raise errors.RpcError(str(err)) from err


@procedure("store_purge")
def store_purge(node: LocalNode) -> None:
    """Remove the copy; the master's own store is not one.

    Raises:
        OpPrereqError: the master daemon runs here.
    """
    if is_master_running(node):
        raise errors.OpPrereqError(
            "the store is in use: the master daemon runs on this node", "wrong_state"
        )
    node.replica.purge(node.newest_term)
