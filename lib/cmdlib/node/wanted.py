"""Which nodes a request names."""

from collections.abc import Sequence

from ganeti import errors, objects
from ganeti.constants import ecodes
from ganeti.objects import lookup
from ganeti.utils import nicesort


def find(
    snapshot: objects.Snapshot, names: Sequence[str], uuids: Sequence[str] | None = None
) -> list[str]:
    """Return node uuids in natural order of their names; all if none are named.

    Raises:
        OpPrereqError: one is unknown.
    """
    for uuid in uuids or ():
        if uuid not in snapshot.nodes:
            raise errors.OpPrereqError(f"node {uuid}: unknown", ecodes.ECODE_NOENT)
    chosen = {lookup.expand_node(snapshot, name) for name in names} | set(uuids or ())
    return by_name(snapshot, chosen or set(snapshot.nodes))


def by_name(snapshot: objects.Snapshot, uuids: set[str]) -> list[str]:
    """Return node uuids in natural order of their names."""
    return sorted(uuids, key=lambda uuid: nicesort.key(snapshot.nodes[uuid].name))
