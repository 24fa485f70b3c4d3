"""Logical volumes of this node, from the JSON report of lvs(8). Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ganeti.model import serializer

#: Field of lvs -> member of the answer, and its type.
_FIELDS: Final[dict[str, tuple[str, type]]] = {
    "lv_uuid": ("uuid", str),
    "lv_name": ("name", str),
    "lv_attr": ("attr", str),
    "lv_major": ("major", int),
    "lv_minor": ("minor", int),
    "lv_kernel_major": ("kernel_major", int),
    "lv_kernel_minor": ("kernel_minor", int),
    "lv_size": ("size", int),
    "seg_count": ("seg_count", int),
    "lv_tags": ("tags", list),
    "lv_modules": ("modules", list),
    "vg_uuid": ("vg_uuid", str),
    "vg_name": ("vg_name", str),
    "segtype": ("segtype", str),
    "seg_start": ("seg_start", int),
    "seg_start_pe": ("seg_start_pe", int),
    "seg_size": ("seg_size", int),
    "seg_tags": ("seg_tags", list),
    "seg_pe_ranges": ("seg_pe_ranges", str),
    "devices": ("devices", str),
}
#: The command whose output `parse` reads; sizes are in bytes.
COMMAND: Final = (
    *("lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--segments"),
    *("-o", ",".join(_FIELDS)),
)


def parse(text: str, instances: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    """Return one row per segment.

    Args:
        text: output of `COMMAND`.
        instances: name of the instance by volume group and volume.

    Raises:
        ParseError: the text is not JSON.
        ValueError: it has another form.
    """
    try:
        reports = serializer.load(text)["report"]
        rows = [row for part in reports for row in part.get("lv", part.get("seg", []))]
        return [
            {
                member: _value(row[field], kind)
                for field, (member, kind) in _FIELDS.items()
            }
            | {"instance": instances.get((row["vg_name"], row["lv_name"]))}
            for row in rows
        ]
    except (KeyError, TypeError, AttributeError) as err:
        raise ValueError(f"no report of lvs: {err!r}") from err


def _value(text: str, kind: type) -> Any:
    if kind is int:
        # Ranges without a value, such as the start in a thin volume, are empty.
        return int(text) if text else None
    if kind is list:
        return [part for part in text.split(",") if part]
    return text


def volumes_of(name: str, disks: Iterable[Any]) -> dict[tuple[str, str], str]:
    """Map the volumes of an instance's disks, and of their parts, to its name.

    Args:
        name: of the instance.
        disks: disks in the form of the configuration.
    """
    volumes = {}
    for disk in disks:
        if not isinstance(disk, Mapping):
            continue
        address = disk.get("logical_id")
        if disk.get("dev_type") == "plain" and isinstance(address, list):
            group, volume = (*map(str, address[:2]), "", "")[:2]
            volumes[group, volume] = name
        volumes |= volumes_of(name, disk.get("children") or ())
    return volumes
