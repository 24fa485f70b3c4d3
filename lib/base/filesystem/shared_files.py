"""The administrator's list of further files that all nodes share.

The file ``/etc/ganeti/shared-files`` on the master has one absolute path per line;
empty lines and lines that start with ``#`` are ignored. The list is sent to all nodes,
then the files on it. A node accepts only what its own copy of the list names, and
nothing that belongs to itself alone or that grants the master more rights there.
"""

import dataclasses
import os
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import VIRTUAL_EXEMPT, Paths
from ganeti.base.text import control_chars

#: Name of the list in the configuration directory.
NAME: Final = "shared-files"
#: Bytes of the list.
_MAX_LIST: Final = 64 * 1024
#: Names of password files in the configuration directory that are shared unlisted.
_VNC_PREFIX: Final = "vnc-"
#: Files on the list, and bytes of one of them.
MAX_FILES: Final = 200
MAX_SIZE: Final = 1024 * 1024
#: Files and directories of the configuration directory that a node's own administrator
#: writes: they grant rights on that node.
_OF_ONE_NODE: Final = (
    "file-storage-paths",
    "image-sources",
    "restricted-commands",
    "node-repair-commands",
    "node-diagnose-commands",
)


@dataclasses.dataclass(frozen=True)
class SharedFiles:
    """The list as read.

    Attributes:
        paths: files to share, local paths of this node, in the order of the list.
        problems: what is wrong, one text per line that is left out.
    """

    paths: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def list_path(paths: Paths) -> str:
    """Return the path of the list."""
    return f"{paths.conf_dir}/{NAME}"


def read(paths: Paths) -> SharedFiles:
    """Read the list of this node; without one, nothing more is shared."""
    try:
        text = files.read_file(list_path(paths), max_size=_MAX_LIST).decode()
    except FileNotFoundError:
        return SharedFiles()
    except (OSError, errors.GenericError, UnicodeDecodeError) as err:
        return SharedFiles(problems=(f"{NAME} cannot be read: {err}",))
    listed: list[str] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        wanted = line.strip()
        if not wanted or wanted.startswith("#"):
            continue
        why = refusal(wanted, paths)
        if not why and len(listed) >= MAX_FILES:
            why = f"wanted at most {MAX_FILES} files"
        if why:
            shown = control_chars.replace(wanted)
            problems.append(f"{NAME} line {number}: {shown}: {why}")
        elif (local := paths.at(wanted)) not in listed:
            listed.append(local)
    return SharedFiles(tuple(listed), tuple(problems))


def is_password_file(path: str, paths: Paths) -> bool:
    """Return whether a node accepts a local path as a VNC password file."""
    directory, name = os.path.split(path)
    return directory == paths.conf_dir and name.startswith(_VNC_PREFIX)


def unreadable(path: str) -> str:
    """Return why a file on the master cannot be shared; empty if it can."""
    try:
        info = os.stat(path)
    except OSError as err:
        return err.strerror or str(err)
    if not os.path.isfile(path):
        return "not a regular file"
    if info.st_size > MAX_SIZE:
        return f"wanted at most {MAX_SIZE} bytes, found {info.st_size}"
    return ""


def refusal(path: str, paths: Paths) -> str:
    """Return why a path must not be on the list, empty if it may.

    Args:
        path: as on the list: without the root directory of a virtual node.
        paths: of this node.
    """
    if not path.startswith("/") or path != os.path.normpath(path):
        return "wanted an absolute path without '.', '..' or doubled slashes"
    if path in VIRTUAL_EXEMPT:
        return "this file is kept by the cluster itself"
    local = paths.at(path)
    own = (paths.data_dir, paths.run_dir, paths.log_dir, paths.sshd_dir)
    kernel = [paths.at(name) for name in ("/proc", "/sys", "/dev")]
    if any(_is_below(local, top) for top in (*own, *kernel)):
        return "files of this directory belong to one node alone"
    if local == list_path(paths):
        return "the list itself is always shared"
    granting = [f"{paths.conf_dir}/{name}" for name in _OF_ONE_NODE]
    granting.append(paths.root_ssh_dir)
    if any(_is_below(local, top) for top in granting):
        return "this grants rights on one node; its administrator writes it there"
    return ""


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")
