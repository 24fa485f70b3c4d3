"""Rules for names of node groups."""

import re
from typing import Final

from ganeti import errors, objects
from ganeti.constants import ecodes, misc

_UUID: Final = re.compile(misc.UUID_REGEX)


def check_new_name(snapshot: objects.Snapshot, name: str) -> None:
    """Check a name for a group.

    Raises:
        OpPrereqError: it is in use, looks like a uuid, or has unprintable characters.
    """
    if not name.isprintable() or name != name.strip():
        # Files on all nodes have one line per group.
        raise errors.OpPrereqError(
            f"node group {name!r}: a name must have printable characters only, and no"
            " space at its ends",
            ecodes.ECODE_INVAL,
        )
    if _UUID.fullmatch(name):
        raise errors.OpPrereqError(
            f"node group {name}: a name must not look like a uuid", ecodes.ECODE_INVAL
        )
    if (other := snapshot.uuid_of("nodegroups", name)) is not None:
        raise errors.OpPrereqError(
            f"node group {name}: already exists, with uuid {other}",
            ecodes.ECODE_EXISTS,
        )
