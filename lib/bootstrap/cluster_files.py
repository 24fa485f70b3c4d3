"""What makes a node a part of its cluster: files of the state directory.

Which of them a node has depends on its role; who removes them removes all.
"""

import glob
import os
from typing import Final

from ganeti.constants import ssconf as ssconf_constants
from ganeti.pathutils import Paths

_PATTERNS: Final = (
    "server.pem",
    "client.pem",
    "rapi.pem",
    "spice.pem",
    "spice-ca.pem",
    "hmac.key",
    "cluster-domain-secret",
    "known_hosts",
    "ganeti_pub_keys",
    "config.data",
    # With its journal, and what an upgrade or a damage left beside it.
    "store.db*",
    f"{ssconf_constants.FILEPREFIX}*",
)


def of_node(paths: Paths) -> list[str]:
    """Return the paths of such files that this node has."""
    top = glob.escape(paths.data_dir)
    return [
        path for pattern in _PATTERNS for path in glob.glob(os.path.join(top, pattern))
    ]
