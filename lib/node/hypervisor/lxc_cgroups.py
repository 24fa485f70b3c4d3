"""Control groups (version 2) of containers: their limits and consumption.

LXC makes the group ``lxc.payload.NAME``. Programs inside may have moved the first
process to a group below it. See the kernel's document cgroup-v2.
"""

import dataclasses
import os
from collections.abc import Iterable
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.node.hypervisor.base import MIB, NodeEffects

ROOT: Final = "/sys/fs/cgroup"
#: Controllers that containers need; limits of processors and memory.
NEEDED: Final = ("cpuset", "memory")
_PAYLOAD: Final = "lxc.payload."
_US_PER_S: Final = 1_000_000


def controllers(root: str = ROOT) -> frozenset[str] | None:
    """Return the controllers of this node, None without cgroups of version 2."""
    try:
        text = files.text_of(f"{root}/cgroup.controllers", files.MAX_PROC)
        return frozenset(text.split())
    except FileNotFoundError:
        return None


def problem(extra: Iterable[str] = (), root: str = ROOT) -> str | None:
    """Return the reason why containers cannot be limited here, or None.

    Args:
        extra: names of further controllers that are wanted.
        root: where the groups are mounted.
    """
    offered = controllers(root)
    if offered is None:
        return (
            f"{root}: wanted cgroups of version 2, found none; start the kernel with"
            " systemd.unified_cgroup_hierarchy=1"
        )
    missing = sorted({*NEEDED, *extra} - offered)
    if missing:
        return f"{root}: the kernel offers no controller {', '.join(missing)}"
    return None


def mount_if_missing(effects: NodeEffects, root: str = ROOT) -> None:
    """Mount the groups where nothing is mounted yet.

    Raises:
        HypervisorError: they cannot be mounted.
    """
    if controllers(root) is not None or os.path.ismount(root):
        return
    result = effects.process.run(["mount", "-t", "cgroup2", "cgroup2", root])
    if result.failed:
        raise errors.HypervisorError(
            f"{root}: cannot mount cgroups: {result.output.strip()}"
        )


def limits_swap(cmdline: str = "/proc/cmdline") -> bool:
    """Return whether the kernel counts the swap space of groups."""
    return "swapaccount=0" not in files.text_of(cmdline, files.MAX_PROC).split()


@dataclasses.dataclass(frozen=True)
class Group:
    """The group of a running container."""

    path: str

    def read(self, name: str) -> str:
        """Return the content of a file, an empty text if there is none."""
        try:
            return files.text_of(f"{self.path}/{name}", files.MAX_PROC).strip()
        except OSError:
            return ""

    def memory_mib(self) -> int | None:
        """Return the limit of memory, None without one."""
        limit = self.read("memory.max")
        return int(limit) // MIB if limit.isdigit() else None

    def used_mib(self) -> int:
        """Return the memory in use."""
        used = self.read("memory.current")
        return int(used) // MIB if used.isdigit() else 0

    def vcpus(self) -> int | None:
        """Return the number of processors that it may use, None if not limited."""
        listed = self.read("cpuset.cpus.effective")
        if not listed:
            return None
        ranges = [word.partition("-") for word in listed.split(",")]
        return sum(int(high or low) - int(low) + 1 for low, _, high in ranges)

    def time_s(self) -> float:
        """Return the CPU time."""
        rows = dict(
            line.split(maxsplit=1) for line in self.read("cpu.stat").splitlines()
        )
        return int(rows.get("usage_usec", 0)) / _US_PER_S

    def set_memory(self, size_mib: int) -> None:
        """Change the limit of memory; the kernel takes memory away if it must."""
        try:
            with open(f"{self.path}/memory.max", "w", encoding="ascii") as out:
                out.write(str(size_mib * MIB))
        except OSError as err:
            raise errors.HypervisorError(
                f"{self.path}: cannot limit memory to {size_mib} MiB: {err.strerror}"
            ) from err


def of_process(pid: int, root: str = ROOT, proc: str = "/proc") -> Group | None:
    """Return the group of the container with this first process, None if it ended."""
    try:
        text = files.text_of(f"{proc}/{pid}/cgroup", files.MAX_PROC)
        lines = text.splitlines()
    except OSError:
        return None
    for line in lines:
        number, _, rest = line.partition(":")
        parts = rest.partition(":")[2].strip("/").split("/")
        for index, part in enumerate(parts):
            if number == "0" and part.startswith(_PAYLOAD):
                return Group("/".join((root, *parts[: index + 1])))
    return None
