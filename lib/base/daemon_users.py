"""Users of their own of daemons, and the groups that may read a daemon's files.

The Debian package creates the users. A daemon whose user this machine lacks does not
start, unless an administrator allows that it runs as root, as virtual clusters do.
"""

import contextlib
import os
import pwd
import stat
import sys
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ganeti import _buildconf
from ganeti.base.filesystem import files, pidfile
from ganeti.base.pathutils import Paths

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


def daemons() -> tuple[str, ...]:
    """Return the names of the daemons that have users of their own."""
    return tuple(_ROLES)


def obstacle(daemon: str, paths: Paths) -> str:
    """Return why a daemon that root starts cannot have its user, empty if it can.

    Also empty for a daemon without a user, on a virtual node, and if this is not root.
    """
    name = name_of(daemon)
    if name is None or paths.is_virtual or os.geteuid() != _ROOT:
        return ""
    if identity(daemon, paths) is None:
        return (
            f"this machine has no user {name}; the command useradd --system"
            f" --user-group --shell /usr/sbin/nologin {name} creates it"
        )
    closed = unreadable_program() or _closed_directory(
        os.path.dirname(top) for top in (paths.data_dir, paths.run_dir, paths.log_dir)
    )
    return closed and f"user {name} may not read {closed}, which {daemon} needs"


def present(paths: Paths) -> dict[str, str]:
    """Return name -> user of each daemon in `daemons` that runs on this node.

    Empty on a virtual node, whose daemons all run as whoever started it.
    """
    users: dict[str, str] = {}
    for daemon in () if paths.is_virtual else _ROLES:
        pid = pidfile.live_pid(paths.pid_file(daemon), daemon)
        # The process may have ended, or the user have no name.
        with contextlib.suppress(OSError, KeyError):
            if pid is not None:
                users[daemon] = pwd.getpwuid(_effective_uid(pid)).pw_name
    return users


def _effective_uid(pid: int) -> int:
    """Return the user of a process; the owner of its directory in /proc may be root."""
    lines = files.text_of(f"/proc/{pid}/status", files.MAX_PROC).splitlines()
    row = next(line for line in lines if line.startswith("Uid:"))
    return int(row.split()[2])


def unreadable_program() -> str:
    """Return a file of this program that users may not read, empty if there is none.

    An interpreter below /root is such a case: modules are also read later.
    """
    for path in (sys.executable, os.__file__, __file__):
        where = os.path.realpath(path)
        if not os.stat(where).st_mode & stat.S_IROTH:
            return where
        closed = _closed_directory([os.path.dirname(where)])
        if closed:
            return closed
    return ""


def _closed_directory(places: Iterable[str]) -> str:
    """Return a directory that users may not enter, among these and those above."""
    for place in places:
        where = os.path.realpath(place)
        while where != "/":
            if not os.stat(where).st_mode & stat.S_IXOTH:
                return where
            where = os.path.dirname(where)
    return ""


def assume(user: Identity, groups: Collection[int] = ()) -> None:
    """Become a user for good, without capabilities.

    Args:
        user: to become.
        groups: its further groups.

    Raises:
        OSError: this process may not.
    """
    os.setgroups(list(groups))
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
            choice, if confd's user is in it. A group of another Ganeti's user is not.
    """
    user = identity("ganeti-confd", paths)
    if user is None or (present != _ROOT and present in _groups(user)):
        return present
    return user.gid


def further_groups(daemon: str, user: Identity, paths: Paths) -> list[int]:
    """Return the groups that a daemon keeps beside its own: confd reads the store."""
    group = os.stat(paths.data_dir).st_gid
    needs_it = daemon == "ganeti-confd" and group not in (_ROOT, user.gid)
    return [group] if needs_it and group in _groups(user) else []


def _groups(user: Identity) -> list[int]:
    return os.getgrouplist(user.name, user.gid)
