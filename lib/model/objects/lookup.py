"""Names to uuids: the forms in which users may name an object.

Accepted are the exact name, the uuid, and for nodes and instances the leading
components of the name (``web1`` for ``web1.example.com``) when only one matches.
Host names do not distinguish case.
"""

from collections.abc import Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text import messages, nicesort
from ganeti.model.objects.snapshot import Snapshot

#: Word for messages by table.
_KINDS: Final = {
    "nodes": "Node",
    "nodegroups": "Node group",
    "instances": "Instance",
    "networks": "Network",
    "filters": "Filter rule",
}
#: Tables whose names are host names.
_HOSTS: Final = frozenset(("nodes", "instances"))


def find(snapshot: Snapshot, table: str, name: str) -> str | None:
    """Return the uuid of an object, None unless exactly one matches."""
    matches = _candidates(snapshot, table, name)
    return matches[0] if len(matches) == 1 else None


def expand(snapshot: Snapshot, table: str, name: str) -> str:
    """Return the uuid of an object.

    Raises:
        OpPrereqError: unknown_entity; no object or more than one matches.
    """
    matches = _candidates(snapshot, table, name)
    if len(matches) == 1:
        return matches[0]
    kind = _KINDS[table]
    if not matches:
        raise errors.OpPrereqError(f"{kind} '{name}' not known", ecodes.ECODE_NOENT)
    names = messages.some(snapshot.table(table)[uuid].name for uuid in matches)
    raise errors.OpPrereqError(
        f"{kind} '{name}' not known: it matches {names}", ecodes.ECODE_NOENT
    )


def with_short_name(snapshot: Snapshot, table: str, name: str) -> list[str]:
    """Return the other names with the same first component, sorted.

    With one more such name, the short form is that name, or of none of them.
    """
    short = name.partition(".")[0].lower()
    return sorted(
        other
        for other in snapshot.names(table)
        if other != name and other.partition(".")[0].lower() == short
    )


def expand_node(snapshot: Snapshot, name: str) -> str:
    """Return the uuid of a node. Raises OpPrereqError, see `expand`."""
    return expand(snapshot, "nodes", name)


def expand_group(snapshot: Snapshot, name: str) -> str:
    """Return the uuid of a node group. Raises OpPrereqError, see `expand`."""
    return expand(snapshot, "nodegroups", name)


def group_names(snapshot: Snapshot, name: str | None) -> list[str]:
    """Return the full name of a group, or those of all, sorted.

    Raises:
        OpPrereqError: see `expand`.
    """
    if name:
        return [snapshot.nodegroups[expand_group(snapshot, name)].name]
    return sorted(group.name for group in snapshot.nodegroups.values())


def expand_instance(snapshot: Snapshot, name: str) -> str:
    """Return the uuid of an instance. Raises OpPrereqError, see `expand`."""
    return expand(snapshot, "instances", name)


def expand_network(snapshot: Snapshot, name: str) -> str:
    """Return the uuid of a network. Raises OpPrereqError, see `expand`."""
    return expand(snapshot, "networks", name)


def expand_nodes(
    snapshot: Snapshot, names: Sequence[str], uuids: Sequence[str] | None = None
) -> list[str]:
    """Return node uuids in natural order of their names; all if none are named.

    Raises:
        OpPrereqError: one is unknown.
    """
    for uuid in uuids or ():
        if uuid not in snapshot.nodes:
            raise errors.OpPrereqError(f"node {uuid}: unknown", ecodes.ECODE_NOENT)
    chosen = {expand_node(snapshot, name) for name in names} | set(uuids or ())
    return sort_nodes(snapshot, chosen or set(snapshot.nodes))


def sort_nodes(snapshot: Snapshot, uuids: set[str]) -> list[str]:
    """Return node uuids in natural order of their names."""
    return sorted(uuids, key=lambda uuid: nicesort.key(snapshot.nodes[uuid].name))


def _candidates(snapshot: Snapshot, table: str, name: str) -> list[str]:
    exact = snapshot.uuid_of(table, name)
    if exact is not None:
        return [exact]
    if name in snapshot.table(table):
        return [name]
    if table not in _HOSTS or not name:
        return []
    lowered = name.lower()
    matches = []
    for uuid in snapshot.same_host(table, lowered.partition(".")[0]):
        full = snapshot.table(table)[uuid].name.lower()
        if full == lowered:
            return [uuid]
        if full.startswith(f"{lowered}."):
            matches.append(uuid)
    return matches
