"""Marks of guests that are helper machines: files that are gone after a reboot.

A mark says that the guest of this name may be ended by force. So each start of the
instance itself removes it: that of a helper machine that nobody could end may be left.
"""

import os

from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.node.hypervisor.base import check_instance_name


def _path(paths: Paths, name: str) -> str:
    return f"{paths.run_dir}/helper-machines/{check_instance_name(name)}"


def make(paths: Paths, name: str) -> None:
    """Mark the guest of an instance as a helper machine."""
    path = _path(paths, name)
    files.make_dir(os.path.dirname(path), 0o755)
    files.write_file(path, "", mode=0o600)


def is_made(paths: Paths, name: str) -> bool:
    """Return whether the guest of an instance is a helper machine, if it runs."""
    return os.path.exists(_path(paths, name))


def remove(paths: Paths, name: str) -> None:
    """Remove the mark of an instance, if there is one."""
    files.remove_file(_path(paths, name))
