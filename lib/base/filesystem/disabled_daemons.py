"""Settings of an administrator for the daemons of a node: disabled ones, arguments.

The file ``/etc/default/ganeti`` has them as variables; daemon-util reads the same file.
"""

import shlex
from typing import Final

from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths

DEFAULTS: Final = "/etc/default/ganeti"
_MAX_FILE: Final = 64 * 1024


def names(paths: Paths) -> frozenset[str]:
    """Return the names of the disabled daemons of this node."""
    return frozenset(_words(paths, "DISABLED_DAEMONS"))


def arguments_name(daemon: str) -> str:
    """Return the name of the variable with the arguments of a daemon."""
    return f"{daemon.removeprefix('ganeti-').upper()}_ARGS"


def arguments(paths: Paths, daemon: str) -> list[str]:
    """Return the arguments with which a daemon of this node is started."""
    return _words(paths, arguments_name(daemon))


def _words(paths: Paths, variable: str) -> list[str]:
    """Return the words in a variable, none if it is missing or damaged."""
    try:
        text = files.read_file(paths.at(DEFAULTS), max_size=_MAX_FILE).decode(
            errors="replace"
        )
    except OSError:
        return []
    listed: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith(f"{variable}="):
            try:
                words = shlex.split(
                    line.strip().removeprefix(f"{variable}="), comments=True
                )
            except ValueError:
                continue
            listed = " ".join(words).split()
    return listed
