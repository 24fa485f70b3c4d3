"""Files with what the network script of a NIC needs: one per NIC of a guest.

They are ``xen-hypervisor/nic/NAME/INDEX`` below the run directory, and have an
assignment per line that a shell can read, too: an administrator's own script may do so.
"""

import os
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import check_instance_name

if TYPE_CHECKING:
    from ganeti.model.objects.filled import InstanceX

_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]*")
#: These are known only when the interface exists.
_LATER: Final = frozenset({"PATH", "INTERFACE"})
_MODE: Final = 0o640


def directory(paths: Paths, name: str) -> str:
    """Return the directory of a guest's files."""
    return f"{paths.run_dir}/xen-hypervisor/nic/{check_instance_name(name)}"


def write(paths: Paths, instance: "InstanceX") -> None:
    """Write the files of all NICs of a guest, and remove older ones.

    Raises:
        HypervisorError: a value has more than one line.
    """
    remove(paths, instance.name)
    where = directory(paths, instance.name)
    os.makedirs(where, mode=0o750, exist_ok=True)
    for index, nic in enumerate(instance.nics):
        env = networks.environment(instance, nic, index, "")
        lines = []
        for key, value in sorted(env.items()):
            if key in _LATER:
                continue
            if not value.isprintable():
                raise errors.HypervisorError(
                    f"instance {instance.name}: NIC {index}: wanted {key} in one line"
                    f" without control characters, found {value!r}"
                )
            lines.append(f"{key}={shlex.quote(value)}\n")
        files.write_file(f"{where}/{index}", "".join(lines).encode(), mode=_MODE)


def read(paths: Paths, name: str, index: int) -> dict[str, str]:
    """Return the values of one NIC by name.

    Raises:
        HypervisorError: there is no such NIC, or the file is damaged.
    """
    path = f"{directory(paths, name)}/{index}"
    try:
        text = files.read_file(path).decode()
        words = shlex.split(text)
    except (OSError, ValueError) as err:
        raise errors.HypervisorError(
            f"instance {name}: NIC {index}: {path}: {err}"
        ) from err
    rows = (word.partition("=") for word in words)
    return {key: value for key, _, value in rows if _NAME.fullmatch(key)}


def remove(paths: Paths, name: str) -> None:
    """Remove the files of a guest, if any."""
    shutil.rmtree(directory(paths, name), ignore_errors=True)
