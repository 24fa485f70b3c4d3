"""Procedures that list LVM's volume groups and volumes."""

from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage import lvm


@procedure("vg_list")
def vg_list(node: LocalNode) -> dict[str, int]:
    """Return the size of each volume group in MiB."""
    return lvm.volume_groups(node.process)


@procedure("lv_list")
def lv_list(
    node: LocalNode, vg_name: str | list[str]
) -> dict[str, tuple[str, bool, bool]]:
    """Return size text, inactive and open of each volume, by ``group/name``.

    Virtual volumes, which hold no data of their own, are left out.
    """
    groups = [vg_name] if isinstance(vg_name, str) else vg_name
    return {
        f"{volume.group}/{volume.name}": (
            volume.size_text,
            volume.is_inactive,
            volume.is_open,
        )
        for volume in lvm.volumes(node.process, [name for name in groups if name])
        if not volume.is_virtual
    }


@procedure("node_volumes")
def node_volumes(node: LocalNode) -> list[dict[str, str]]:
    """Return a row for each device of each volume; ``-`` when it has none."""
    return [
        {
            "name": volume.name,
            "size": volume.size_text,
            "dev": device,
            "vg": volume.group,
        }
        for volume in lvm.volumes(node.process)
        for device in volume.devices or ("-",)
    ]
