"""Resources that nodes report, and the space of disks. Sizes are in MiB."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from ganeti.model import objects

#: Space of DRBD's metadata per disk.
DRBD_META_MIB: Final = 128


@dataclasses.dataclass(frozen=True, slots=True)
class NodeResources:
    """A node's report; names as in requests.

    ``free_memory`` is unused now; running instances may still grow into it.
    """

    total_memory: int
    reserved_memory: int
    free_memory: int
    total_disk: int
    free_disk: int
    total_cpus: int
    reserved_cpus: int


def read(node: objects.Node, report: Any) -> NodeResources | None:
    """Parse a payload of ``node_info``; return None without a usable payload."""
    if node.offline or not node.vm_capable or report is None:
        return None
    _boot_id, storage, hypervisors = report
    hv = hypervisors[0] if hypervisors and hypervisors[0] else {}
    space = storage[0] if storage and storage[0] else {}
    return NodeResources(
        total_memory=int(hv.get("memory_total") or 0),
        reserved_memory=int(hv.get("memory_dom0") or 0),
        free_memory=int(hv.get("memory_free") or 0),
        total_disk=int(space.get("storage_size") or 0),
        free_disk=int(space.get("storage_free") or 0),
        total_cpus=int(hv.get("cpu_total") or 0),
        reserved_cpus=int(hv.get("cpu_dom0") or 0),
    )


def disk_space(template: str, sizes_mib: Sequence[int]) -> int:
    """Return the space that an instance's disks take on a node."""
    if template == "diskless":
        return 0
    extra = DRBD_META_MIB if template == "drbd" else 0
    return sum(sizes_mib) + extra * len(sizes_mib)
