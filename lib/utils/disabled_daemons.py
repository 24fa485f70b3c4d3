"""Daemons that are installed, but that an administrator does not want on a node.

The variable ``DISABLED_DAEMONS`` of ``/etc/default/ganeti`` lists them; daemon-util
reads the same file.
"""

import shlex
from typing import Final

from ganeti.pathutils import Paths
from ganeti.utils import files

_VARIABLE: Final = "DISABLED_DAEMONS="
_MAX_FILE: Final = 64 * 1024


def names(paths: Paths) -> frozenset[str]:
    """Return the names of the disabled daemons of this node."""
    try:
        text = files.read_file(
            paths.at("/etc/default/ganeti"), max_size=_MAX_FILE
        ).decode(errors="replace")
    except OSError:
        return frozenset()
    listed: frozenset[str] = frozenset()
    for line in text.splitlines():
        if line.strip().startswith(_VARIABLE):
            try:
                words = shlex.split(line.strip().removeprefix(_VARIABLE), comments=True)
            except ValueError:
                continue
            listed = frozenset(" ".join(words).split())
    return listed
