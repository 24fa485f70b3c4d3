"""The request for the new instance, from the description of the old one.

Values of the source cluster are data: the destination checks them like those of any
request. Pure functions.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.migration.move_instance.settings import Target

#: Members of a NIC in the description of an instance, in their order.
_NIC: Final = ("name", "uuid", "ip", "mac", "mode", "link", "vlan", "network")
_NIC_IN_NETWORK: Final = ("name", "ip", "mac", "network")
_NIC_ALONE: Final = ("name", "ip", "mac", "mode", "link", "vlan")
#: Backend parameters that one of older requests stands for.
_MEMORY: Final = ("maxmem", "minmem")


def creation(
    info: Mapping[str, Any], prepared: Mapping[str, Any], target: Target, compress: str
) -> dict[str, Any]:
    """Return the arguments of the creation of the new instance.

    Args:
        info: description of the old instance by its cluster.
        prepared: result of the preparation of its export.
        target: requested properties.
        compress: compression tool.
    """
    is_other = bool(target.hypervisor) and target.hypervisor != info["hypervisor"]
    own_hvparams = {} if is_other else info["hv_instance"]
    nodes = {"pnode": target.primary, "snode": target.secondary}
    choice = {**nodes, "iallocator": target.iallocator}
    return {
        "mode": "remote-import",
        "name": target.name or info["name"],
        "disk_template": target.template or info["disk_template"],
        "disks": [_disk(disk) for disk in info["disks"]],
        "nics": nics(info["nics"], target.nics),
        "os_type": info["os"] or None,
        "hypervisor": target.hypervisor or info["hypervisor"],
        "hvparams": {**own_hvparams, **target.hvparams},
        "beparams": _backend(info["be_actual"], target.beparams),
        "osparams": {**info["os_instance"], **target.osparams},
        # The source may still run and answer. The name was checked when it was created.
        "ip_check": False,
        "name_check": False,
        "force_variant": True,
        # Only when all content is there, and the source stays stopped.
        "start": False,
        "source_handshake": prepared["handshake"],
        "source_x509_ca": prepared["x509_ca"],
        "source_instance_name": info["name"],
        "compress": compress,
        **{key: value for key, value in choice.items() if value},
    }


def _disk(disk: Mapping[str, Any]) -> dict[str, Any]:
    spec = {"size": disk["size"], "mode": disk["mode"]}
    return spec | ({"name": disk["name"]} if disk.get("name") else {})


def _backend(own: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present parameters, also those by default, and the changed ones."""
    kept = dict(own)
    if "memory" in changed:
        for name in _MEMORY:
            kept.pop(name, None)
    return {**kept, **changed}


def nics(
    own: Sequence[Sequence[Any]], changed: Mapping[int, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the NICs of the new instance: the present ones with changes.

    Indices above those of the present ones add NICs. A change of the place, such as
    ``link`` or ``network``, replaces all of it.
    """
    count = max([len(own), *(index + 1 for index in changed)])
    wanted = []
    for index in range(count):
        nic = _nic(own[index]) if index < len(own) else {}
        given = changed.get(index, {})
        if "network" in given:
            nic = {k: v for k, v in nic.items() if k not in ("mode", "link", "vlan")}
        elif {"mode", "link"} & set(given):
            nic.pop("network", None)
        wanted.append({**nic, **given})
    return wanted


def _nic(row: Sequence[Any]) -> dict[str, Any]:
    values = dict(zip(_NIC, row, strict=False))
    keys = _NIC_IN_NETWORK if values.get("network") else _NIC_ALONE
    return {key: values[key] for key in keys if values.get(key)}
