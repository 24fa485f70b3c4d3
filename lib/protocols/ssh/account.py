"""Account for logins between nodes, and the environment of its commands."""

import os
import pwd

from ganeti.base import errors, pathutils
from ganeti.base.constants import ecodes
from ganeti.model.objects.consoles import ConsoleHost


def login_user(paths: pathutils.Paths) -> str:
    """Return the account on nodes: root; in a virtual cluster, the user who runs it.

    Raises:
        OpPrereqError: this machine has no account of that user.
    """
    if not paths.is_virtual:
        return "root"
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise errors.OpPrereqError(
            f"user {os.getuid()}: this machine has no account with this number, which"
            " the SSH servers of virtual nodes need",
            ecodes.ECODE_ENVIRON,
        ) from None


def node_environment(paths: pathutils.Paths, node: str) -> dict[str, str]:
    """Return the variables that commands on other virtual nodes need; else empty."""
    if not paths.is_virtual:
        return {}
    return {
        pathutils.ROOTDIR_ENV: os.path.join(os.path.dirname(paths.root), node),
        pathutils.HOSTNAME_ENV: node,
    }


def console_host(
    paths: pathutils.Paths, node: str, address: str, port: int
) -> ConsoleHost:
    """Return a node as the place of consoles.

    Args:
        paths: paths of this node.
        node: name of the node.
        address: its primary IP address.
        port: port of its SSH server.
    """
    environment = node_environment(paths, node)
    return ConsoleHost(
        address,
        port,
        login_user(paths),
        paths.tools_dir,
        environment,
        path_on(paths, node, paths.run_dir),
    )


def path_on(paths: pathutils.Paths, node: str, path: str) -> str:
    """Return the path on another virtual node that corresponds to a local path."""
    root = paths.root
    if not root or not path.startswith(f"{root}/"):
        return path
    return f"{os.path.dirname(root)}/{node}{path.removeprefix(root)}"
