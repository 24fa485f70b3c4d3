"""Fast reader of the instances of an allocator's request. Pure.

Reads only records that match the schema exactly. All others, including some that are
still valid, are left to `htools.hail.request`, whose errors name the place.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from ganeti.decisions.htools.model.cluster import (
    MOVABLE_TEMPLATES,
    NONE,
    RUNNING,
    Instance,
)

#: Admin state in requests -> instance status.
STATUS: Final[dict[str, str]] = {
    "up": "running",
    "down": "ADMIN_down",
    "offline": "ADMIN_offline",
}
_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Disk(msgspec.Struct, gc=False):
    size: _Size
    spindles: _Size | None = None


class _Nic(msgspec.Struct, gc=False):
    network: str | None = None


class _Record(msgspec.Struct, gc=False):
    nodes: tuple[str, ...]
    disk_template: str
    memory: _Size
    disk_space_total: _Size
    vcpus: _Size
    disks: tuple[_Disk, ...]
    nics: tuple[_Nic, ...] = ()
    tags: tuple[str, ...] = ()
    admin_state: Literal["up", "down", "offline"] = "up"
    spindle_use: _Size = 1
    forthcoming: bool = False
    migrates: bool = True


def read(data: Any, places: Mapping[str, int]) -> list[Instance] | None:
    """Return a request's instances; None if one does not match the schema.

    Args:
        data: the decoded object of all instances.
        places: node name -> position.
    """
    try:
        records = msgspec.convert(data, dict[str, _Record])
    except msgspec.ValidationError:
        return None
    out = []
    for name, record in records.items():
        nodes = [places.get(node, NONE) for node in record.nodes]
        if not nodes or NONE in nodes or nodes[0] in nodes[1:2]:
            return None
        secondary = nodes[1] if len(nodes) > 1 else NONE
        out.append(_instance(name, record, nodes[0], secondary))
    return out


def _instance(name: str, record: _Record, primary: int, secondary: int) -> Instance:
    disks, template = record.disks, record.disk_template
    status = STATUS[record.admin_state]
    migrates = record.migrates or status not in RUNNING
    spindles = [disk.spindles for disk in disks if disk.spindles is not None]
    return Instance(
        name=name,
        memory=record.memory,
        disk=record.disk_space_total,
        vcpus=record.vcpus,
        primary=primary,
        secondary=secondary,
        status=status,
        template=template,
        tags=record.tags,
        spindle_use=record.spindle_use,
        spindles=sum(spindles) if len(spindles) == len(disks) else None,
        forthcoming=record.forthcoming,
        disks=tuple([disk.size for disk in disks]),
        movable=template in MOVABLE_TEMPLATES and migrates,
        migrates=migrates,
        networks=tuple([nic.network for nic in record.nics if nic.network is not None])
        if record.nics
        else (),
    )
