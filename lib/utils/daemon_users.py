"""Users of their own of daemons, and the groups that may read a daemon's files.

The Debian package creates the users. A daemon without a user on this machine runs as
root, as all daemons of virtual nodes do.
"""

import os
import pwd
import stat
import sys
from typing import Final, NamedTuple

from ganeti import _buildconf
from ganeti.pathutils import Paths

#: Daemon -> name of its user without the prefix that configure sets.
_ROLES: Final = {
    "ganeti-confd": "confd",
    "ganeti-rapi": "rapi",
    "ganeti-mond": "mond",
}
#: Owner and group of files that no daemon with a user of its own reads.
_ROOT: Final = 0


class Identity(NamedTuple):
    """User and group of a daemon.

    Attributes:
        name: of the user.
        uid: number of the user, not 0.
        gid: number of the user's group.
    """

    name: str
    uid: int
    gid: int


def name_of(daemon: str) -> str | None:
    """Return the name of a daemon's user, None if the daemon is always root's."""
    role = _ROLES.get(daemon)
    return None if role is None else f"{_buildconf.USER_PREFIX}{role}"


def identity(daemon: str, paths: Paths) -> Identity | None:
    """Return the user of a daemon; None if it has none, or this machine lacks it."""
    name = name_of(daemon)
    if name is None or paths.is_virtual or os.geteuid() != _ROOT:
        return None
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    # A user with the number of root would change nothing.
    return Identity(name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def unreadable_program() -> str:
    """Return a file of this program that users may not read, empty if there is none.

    An interpreter below /root is such a case: modules are also read later.
    """
    for path in (sys.executable, os.__file__, __file__):
        where = os.path.realpath(path)
        if not os.stat(where).st_mode & stat.S_IROTH:
            return where
        while where != "/":
            where = os.path.dirname(where)
            if not os.stat(where).st_mode & stat.S_IXOTH:
                return where
    return ""


def assume(user: Identity) -> None:
    """Become a user for good, without further groups and capabilities.

    Raises:
        OSError: this process may not.
    """
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def reader_group(path: str, paths: Paths) -> int | None:
    """Return the group that reads a file or directory of the state directory.

    Args:
        path: of the file, on this node.
        paths: of this node.

    Returns:
        the group's number; None if no daemon with a user of its own reads it.
    """
    if os.geteuid() != _ROOT:
        return None
    if path == paths.hmac_key or path.startswith(paths.store_db):
        return os.stat(paths.data_dir).st_gid
    of_rapi = {paths.data(name) for name in ("rapi", "rapi/users", "rapi.pem")}
    if path in of_rapi or path == paths.rapi_socket_dir:
        user = identity("ganeti-rapi", paths)
        return _ROOT if user is None else user.gid
    return None


def followers_group(paths: Paths, present: int) -> int:
    """Return the group that the state directory should have.

    Args:
        paths: of this node.
        present: group that it has; another one than root's is the administrator's
            choice.
    """
    user = identity("ganeti-confd", paths)
    return present if present != _ROOT or user is None else user.gid
