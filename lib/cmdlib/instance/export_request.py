"""The parts of a request to import an instance that come from the export.

Values of the request win. The description is data of whoever made the export: names
of parameters that this release does not have are left out, and values are checked like
those of any request.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ganeti import opcodes
from ganeti.constants import hvparams, params
from ganeti.objects.export_info import ExportedDisk, ExportInfo

Warn = Callable[[str], None]


def completed(
    op: opcodes.InstanceCreate, info: ExportInfo, name: str, warn: Warn
) -> opcodes.InstanceCreate:
    """Return the request with the missing parts from the export.

    Args:
        op: the request.
        info: the export.
        name: the name of the new instance.
        warn: gets a line about each parameter that is left out.
    """
    hypervisor = op.hypervisor or info.hypervisor or None
    is_other = bool(op.hypervisor and op.hypervisor != info.hypervisor)
    own_private = op.osparams_private or {}
    private = _without(info.osparams_private, op.osparams)
    return msgspec.structs.replace(
        op,
        os_type=op.os_type or info.os or None,
        hypervisor=hypervisor,
        hvparams={}
        if is_other
        else _hypervisor(hypervisor, info.hvparams, warn) | op.hvparams,
        beparams=_backend(info.backend, op.beparams, warn) | op.beparams,
        osparams=_without(info.osparams, own_private) | op.osparams,
        osparams_private=(private | own_private) or None,
        disk_template=op.disk_template or info.disk_template or None,
        disks=op.disks or [_disk(disk) for disk in info.disks],
        nics=_nics(op, info, name),
        tags=op.tags or list(info.tags),
        force_variant=True,
    )


def _without(given: Mapping[str, str], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of the OS except those that the request has of another kind."""
    return {key: value for key, value in given.items() if key not in names}


def _hypervisor(
    hypervisor: str | None, given: Mapping[str, str], warn: Warn
) -> dict[str, Any]:
    table = hvparams.HYPERVISOR.get(hypervisor or "", {})
    known = {n: v for n, v in given.items() if n in table and not table[n].cluster_only}
    _warn_unknown(set(given) - set(table), f"hypervisor {hypervisor}", warn)
    return known


def _backend(
    given: Mapping[str, str], requested: Mapping[str, Any], warn: Warn
) -> dict[str, Any]:
    known: dict[str, Any] = {n: v for n, v in given.items() if n in params.BACKEND}
    _warn_unknown(set(given) - set(params.BACKEND), "backend", warn)
    if "memory" in requested:
        for name in ("maxmem", "minmem", "memory"):
            known.pop(name, None)
    return known


def _warn_unknown(names: set[str], what: str, warn: Warn) -> None:
    for name in sorted(names):
        warn(f"the export has the {what} parameter {name!r:.100}, which is left out")


def _disk(disk: ExportedDisk) -> dict[str, Any]:
    spec: dict[str, Any] = {"size": disk.size, "mode": disk.mode}
    return spec | ({"name": disk.name} if disk.name else {})


def _nics(
    op: opcodes.InstanceCreate, info: ExportInfo, name: str
) -> list[dict[str, Any]]:
    """Return the requested NICs, or the exported ones.

    An instance of the exported name gets the exported MAC addresses.
    """
    if op.no_nics:
        return []
    is_same = name == info.name
    nics: list[dict[str, Any]] = [dict(nic.items()) for nic in op.nics]
    if not nics:
        nics = [_nic(nic) for nic in info.nics]
    for index, nic in enumerate(nics):
        if (nic.get("mac") or "auto") != "auto":
            continue
        has_old = is_same and index < len(info.nics)
        nic["mac"] = info.nics[index].get("mac", "auto") if has_old else "auto"
    return nics


def _nic(nic: Mapping[str, str]) -> dict[str, Any]:
    """Return an exported NIC as a request; a network gives mode and link."""
    place = ("network",) if nic.get("network") else ("mode", "link", "vlan")
    keys = ("ip", *place, "name")
    return {key: nic[key] for key in keys if nic.get(key)}
