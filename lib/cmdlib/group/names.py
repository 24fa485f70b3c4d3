"""Rules for names of node groups."""

from ganeti import errors, objects
from ganeti.constants import ecodes
from ganeti.utils import hostnames


def check_new_name(snapshot: objects.Snapshot, name: str) -> None:
    """Check a name for a group.

    Raises:
        OpPrereqError: it is in use, looks like a uuid, or has unprintable characters.
    """
    hostnames.refuse_long(name, "node group")
    if not name.isprintable() or name != name.strip():
        # Files on all nodes have one line per group.
        raise errors.OpPrereqError(
            f"node group {name!r}: a name must have printable characters only, and no"
            " space at its ends",
            ecodes.ECODE_INVAL,
        )
    hostnames.refuse_uuid(name, f"node group {name}")
    if (other := snapshot.uuid_of("nodegroups", name)) is not None:
        raise errors.OpPrereqError(
            f"node group {name}: already exists, with uuid {other}",
            ecodes.ECODE_EXISTS,
        )
