"""Rules for names of node groups."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.net import hostnames
from ganeti.model import objects


def check_new_name(snapshot: objects.Snapshot, name: str) -> None:
    """Check a name for a group.

    Raises:
        OpPrereqError: it is in use, looks like a uuid, or has unprintable characters.
    """
    # Files on all nodes have one line per group.
    hostnames.check_free_name(name, "node group")
    if (other := snapshot.uuid_of("nodegroups", name)) is not None:
        raise errors.OpPrereqError(
            f"node group {name}: already exists, with uuid {other}",
            ecodes.ECODE_EXISTS,
        )
