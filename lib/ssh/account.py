"""Which account nodes know each other by, and what its commands are told."""

import os
import pwd

from ganeti import pathutils


def login_user(paths: pathutils.Paths) -> str:
    """Return the account on nodes: root, in virtual clusters whoever runs them."""
    return pwd.getpwuid(os.getuid()).pw_name if paths.is_virtual else "root"


def node_environment(paths: pathutils.Paths, node: str) -> dict[str, str]:
    """Return what a command on another node of a virtual cluster needs to know."""
    if not paths.is_virtual:
        return {}
    return {
        pathutils.ROOTDIR_ENV: os.path.join(os.path.dirname(paths.root), node),
        pathutils.HOSTNAME_ENV: node,
    }


def path_on(paths: pathutils.Paths, node: str, path: str) -> str:
    """Return where another node of a virtual cluster keeps what we keep there."""
    root = paths.root
    if not root or not path.startswith(f"{root}/"):
        return path
    return f"{os.path.dirname(root)}/{node}{path.removeprefix(root)}"
