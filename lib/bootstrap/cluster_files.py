"""Files of the state directory that make a node a member of its cluster.

The set on a node depends on its role. A node that leaves the cluster removes all of
them.
"""

import glob
import os
from typing import Final

from ganeti.base.pathutils import Paths
from ganeti.protocols.ssconf import FILEPREFIX

_PATTERNS: Final = (
    "server.pem",
    "server-key.pem",
    "client.pem",
    "client.pem.key",
    # The next certificate of a node waits there during a renewal.
    "client.pem.tmp",
    "rapi.pem",
    "spice.pem",
    "spice-ca.pem",
    "hmac.key",
    "cluster-domain-secret",
    "rapi/users",
    "store-engine",
    "etcd-ca.pem",
    "etcd-client.pem",
    "known_hosts",
    "ganeti_pub_keys",
    "config.data",
    # With its journal, and copies that upgrades and repairs keep beside it.
    "store.db*",
    f"{FILEPREFIX}*",
)


def of_node(paths: Paths) -> list[str]:
    """Return the paths of the cluster files that exist on this node."""
    # The root of a virtual node may have characters that a pattern would expand.
    top = glob.escape(paths.data_dir)
    return [
        path for pattern in _PATTERNS for path in glob.glob(os.path.join(top, pattern))
    ]
