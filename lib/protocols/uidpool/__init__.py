"""The user-id pool: a separate user for each guest process of a node.

`pool` parses and changes the cluster's setting, `lease` leases ids on a node. The
names in CapWords are documented for use by other code. See the 2.1 design document,
section "User-id pool".
"""

from ganeti.protocols.uidpool.lease import (
    ExecWithUnusedUid,
    LockedUid,
    ReleaseUid,
    RequestUnusedUid,
)
from ganeti.protocols.uidpool.pool import (
    ExpandUidPool,
    ParseUidPool,
    Pool,
    add_ranges,
    check,
    check_overlaps,
    format_pool,
    remove_ranges,
)

__all__ = [
    "ExecWithUnusedUid",
    "ExpandUidPool",
    "LockedUid",
    "ParseUidPool",
    "Pool",
    "ReleaseUid",
    "RequestUnusedUid",
    "add_ranges",
    "check",
    "check_overlaps",
    "format_pool",
    "remove_ranges",
]
