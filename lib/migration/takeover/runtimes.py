"""Runtime files of guests that another implementation of Ganeti 3 has started.

The forms are the same up to small differences: other implementations write numbers
among the arguments, leave out the control sockets, and have the parameter value
disk_discard=default. Specified in the
hypervisor document, section 2.2.
"""

import contextlib
import os
from typing import Any

import msgspec

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.node.hypervisor.kvm import files as kvm_files
from ganeti.node.hypervisor.kvm import runtime

_SUFFIX = ".runtime"
_MODE = 0o600
_SOCKETS = ("qmp", "kvmd")


def convert(paths: Paths, name: str, text: bytes) -> bytes:
    """Return a runtime file as this implementation reads it.

    Raises:
        HypervisorError: the file is damaged.
    """
    try:
        argv, nics, hvparams, disks = msgspec.json.decode(text)
        strings = _with_control(paths, name, [str(word) for word in argv])
        params: dict[str, Any] = dict(hvparams)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, ValueError) as err:
        raise errors.HypervisorError(f"instance {name}: runtime: {err}") from err
    if params.get("disk_discard") == "default":
        params["disk_discard"] = "ignore"
    value = msgspec.json.encode([strings, nics, params, disks])
    return msgspec.json.encode(runtime.parse(name, value))


def _with_control(paths: Paths, name: str, argv: list[str]) -> list[str]:
    """Return arguments with the control sockets, which others add at each start."""
    if "-qmp" in argv:
        return argv
    guest = kvm_files.Files(paths, name)
    sockets = (f"unix:{guest.control(kind)},server=on,wait=off" for kind in _SOCKETS)
    return [*argv, *(word for socket in sockets for word in ("-qmp", socket))]


def directory(paths: Paths) -> str:
    """Return the directory of the runtime files of a node."""
    return f"{kvm_files.root_dir(paths)}/conf"


def path_of(paths: Paths, name: str) -> str:
    """Return the runtime file of a guest."""
    return f"{directory(paths)}/{name}{_SUFFIX}"


def names(paths: Paths) -> list[str]:
    """Return the guests of this node that have a runtime file, sorted."""
    return _names(directory(paths))


def convert_all(paths: Paths, originals: str) -> list[str]:
    """Convert the runtime files of this node; return the names of their guests.

    Can be repeated after an interruption.

    Args:
        paths: of this node.
        originals: directory for the files as they were.

    Raises:
        HypervisorError: a file is damaged; the files before it are converted.
    """
    present = names(paths)
    os.makedirs(originals, mode=0o700, exist_ok=True)
    for name in present:
        path = path_of(paths, name)
        text = files.read_file(path)
        if not os.path.exists(f"{originals}/{name}{_SUFFIX}"):
            files.write_file(f"{originals}/{name}{_SUFFIX}", text, mode=_MODE)
        converted = convert(paths, name, text)
        if converted != text:
            files.write_file(path, converted, mode=_MODE)
    return present


def restore_all(paths: Paths, originals: str) -> list[str]:
    """Put back the files of guests that were not started since; return their names."""
    restored = []
    for name in _names(originals):
        path = path_of(paths, name)
        before = files.read_file(f"{originals}/{name}{_SUFFIX}")
        with contextlib.suppress(FileNotFoundError):
            if files.read_file(path) == convert(paths, name, before):
                files.write_file(path, before, mode=_MODE)
                restored.append(name)
    return restored


def _names(path: str) -> list[str]:
    try:
        entries = sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    return [name.removesuffix(_SUFFIX) for name in entries if name.endswith(_SUFFIX)]
