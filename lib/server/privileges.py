"""Rights of a daemon that needs none of root's once it serves."""

import argparse
import os
import pwd

from ganeti.server.common import StartError


def check(options: argparse.Namespace, user: str) -> None:
    """Refuse to start as anybody but root, or the daemon's user.

    Raises:
        StartError: another user runs this, or the daemon's user does not exist.
    """
    if options.no_user_checks:
        return
    uid = _entry(user).pw_uid
    if os.geteuid() not in (0, uid):
        raise StartError(
            f"runs as user {os.geteuid()}, wanted root or {user} ({uid}); use"
            " --no-user-checks to run nevertheless"
        )


def _entry(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError as err:
        raise StartError(
            f"there is no user {user}, for whom this program was configured: create it,"
            " or configure with another --with-confd-user"
        ) from err


def drop(user: str) -> None:
    """Become a user for the rest of this process's life; does nothing unless root.

    Raises:
        StartError: there is no such user.
    """
    entry = _entry(user)
    if os.geteuid() != 0 or entry.pw_uid == 0:
        return
    os.initgroups(user, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
