"""Files of guests on a node: configurations, logs, NICs, and states of migrations.

xl has its configuration files in one directory with files of its own, such as
``xl.conf``. A file that is there under the name of a guest, but configures none of this
name, is left alone.

What the network script of a NIC needs is in ``xen-hypervisor/nic/NAME/INDEX`` below the
run directory: an assignment per line that a shell can read, too; an administrator's own
script may do so.
"""

import contextlib
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


DIRECTORY: Final = "/etc/xen"
#: A configuration may have the password of the display.
_MODE: Final = 0o600
_LARGEST: Final = 1 << 20


class Files:
    """The files of one guest."""

    def __init__(self, paths: Paths, name: str) -> None:
        self.name = check_instance_name(name)
        self._paths = paths
        self.config = f"{paths.at(DIRECTORY)}/{name}"
        self.log = f"{paths.log_dir}/xen/{name}.log"
        self._migrations = f"{paths.run_dir}/xen-hypervisor/migration"

    @property
    def failed_config(self) -> str:
        """Copy of the configuration of a start that failed."""
        return f"{self._paths.log_dir}/xen/{self.name}.config"

    def migration(self, suffix: str) -> str:
        """Return a file of a migration: ``pid``, ``result`` or ``arrival``."""
        return f"{self._migrations}/{self.name}.{suffix}"

    def make_directories(self) -> None:
        """Make the directories of log and migrations."""
        os.makedirs(os.path.dirname(self.log), mode=0o750, exist_ok=True)
        os.makedirs(self._migrations, mode=0o750, exist_ok=True)

    def write_config(self, text: str) -> None:
        """Write the configuration.

        Raises:
            HypervisorError: the place has another file.
        """
        self._require_ours()
        try:
            os.makedirs(os.path.dirname(self.config), mode=0o755, exist_ok=True)
            files.write_file(self.config, text.encode(), mode=_MODE)
        except OSError as err:
            raise errors.HypervisorError(
                f"instance {self.name}: cannot write {self.config}: {err.strerror}"
            ) from err

    def remove_config(self) -> None:
        """Remove the configuration, if there is one."""
        with contextlib.suppress(errors.HypervisorError):
            self._require_ours()
            files.remove_file(self.config)

    def keep_failed_config(self) -> str:
        """Move the configuration to the log directory; return its path there."""
        self.make_directories()
        try:
            os.replace(self.config, self.failed_config)
        except OSError:
            # Another file system: the directories need not be on one.
            text = files.read_file(self.config, max_size=_LARGEST)
            files.write_file(self.failed_config, text, mode=_MODE)
            self.remove_config()
        return self.failed_config

    def _require_ours(self) -> None:
        try:
            text = files.read_file(self.config, max_size=_LARGEST)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as err:
            raise self._foreign() from err
        own = rb"^name\s*=\s*['\"]%b['\"]\s*$" % re.escape(self.name).encode()
        if not re.search(own, text, re.MULTILINE):
            raise self._foreign()

    def _foreign(self) -> errors.HypervisorError:
        return errors.HypervisorError(
            f"instance {self.name}: wanted {self.config} for the configuration of the"
            " guest, found a file that configures no guest of this name; move it away,"
            " or rename the instance"
        )


_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
#: These are known only when the interface exists.
_LATER: Final = frozenset({"PATH", "INTERFACE"})
_NIC_MODE: Final = 0o640


def nic_directory(paths: Paths, name: str) -> str:
    """Return the directory of a guest's files."""
    return f"{paths.run_dir}/xen-hypervisor/nic/{check_instance_name(name)}"


def write_nics(paths: Paths, instance: "InstanceX") -> None:
    """Write the files of all NICs of a guest, and remove older ones.

    Raises:
        HypervisorError: a value has more than one line.
    """
    remove_nics(paths, instance.name)
    where = nic_directory(paths, instance.name)
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
        files.write_file(f"{where}/{index}", "".join(lines).encode(), mode=_NIC_MODE)


def read_nic(paths: Paths, name: str, index: int) -> dict[str, str]:
    """Return the values of one NIC by name.

    Raises:
        HypervisorError: there is no such NIC, or the file is damaged.
    """
    path = f"{nic_directory(paths, name)}/{index}"
    try:
        text = files.read_file(path).decode()
        words = shlex.split(text)
    except (OSError, ValueError) as err:
        raise errors.HypervisorError(
            f"instance {name}: NIC {index}: {path}: {err}"
        ) from err
    rows = (word.partition("=") for word in words)
    return {key: value for key, _, value in rows if _VARIABLE.fullmatch(key)}


def remove_nics(paths: Paths, name: str) -> None:
    """Remove the files of a guest, if any."""
    shutil.rmtree(nic_directory(paths, name), ignore_errors=True)
