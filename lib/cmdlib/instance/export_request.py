"""The parts of a request to import an instance that come from the export.

Values of the request win. The description is data of whoever made the export: names
of parameters that this release does not have are left out, and values are checked like
those of any request. Those that would give a guest files, devices or programs of its
node come from the request or the cluster alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ganeti import objects, opcodes
from ganeti.constants import hvparams
from ganeti.constants import params as constants
from ganeti.objects import params
from ganeti.objects.export_info import ExportedDisk, ExportInfo

Warn = Callable[[str], None]

#: Most names in one warning.
_MAX_NAMED: Final = 10
#: Hypervisor parameters that have effects on the node, beside those that are paths.
_EFFECTIVE: Final = frozenset(
    {
        "bootloader_args",
        "devices",
        "drop_capabilities",
        "extra_cgroups",
        "extra_config",
        "kvm_extra",
        "pci_pass",
        "shared_directories",
        "usb_devices",
    }
)


def completed(
    op: opcodes.InstanceCreate,
    info: ExportInfo,
    name: str,
    cluster: objects.Cluster,
    warn: Warn,
) -> opcodes.InstanceCreate:
    """Return the request with the missing parts from the export.

    Args:
        op: the request.
        info: the export.
        name: the name of the new instance.
        cluster: its parameters are those of the node's administrators.
        warn: gets a line about the parameters of each kind that are left out.
    """
    hypervisor = op.hypervisor or info.hypervisor or None
    is_other = bool(op.hypervisor and op.hypervisor != info.hypervisor)
    os_type = op.os_type or info.os or None
    own_private = op.osparams_private or {}
    private = _without(info.osparams_private, op.osparams)
    return msgspec.structs.replace(
        op,
        os_type=os_type,
        hypervisor=hypervisor,
        hvparams=op.hvparams
        if is_other
        else _hypervisor(
            info.hvparams,
            op.hvparams,
            params.hvparams_for(cluster, hypervisor or "", os_type or "", {}),
            hypervisor,
            warn,
        )
        | op.hvparams,
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
    given: Mapping[str, str],
    requested: Mapping[str, Any],
    own: Mapping[str, Any],
    hypervisor: str | None,
    warn: Warn,
) -> dict[str, Any]:
    """Return those parameters of an export that an instance may have.

    Args:
        given: of the export.
        requested: of the request.
        own: those of the cluster.
        hypervisor: its name.
        warn: see `completed`.
    """
    table = hvparams.HYPERVISOR.get(hypervisor or "", {})
    what = f"hypervisor {hypervisor}"
    _warn_left_out(
        set(given) - set(table), what, "this release does not have them", warn
    )
    known = {n: v for n, v in given.items() if n in table and not table[n].cluster_only}
    refused = {
        name
        for name, value in known.items()
        if name not in requested
        and _has_effect(name, table[name])
        and not _is_fine(name, value, own[name])
    }
    why = (
        "they name files, devices or programs of the node, with other values than the"
        " cluster's; give them with -H if you trust the export"
    )
    _warn_left_out(refused, what, why, warn)
    return {name: value for name, value in known.items() if name not in refused}


def _has_effect(name: str, row: hvparams.HvParam) -> bool:
    """Return whether a parameter gives a guest something of its node."""
    is_path = isinstance(row.allowed, str) and row.allowed.startswith("absolute")
    return name in _EFFECTIVE or (is_path and "inside the chroot" not in row.allowed)


def _is_fine(name: str, value: str, own: Any) -> bool:
    """Return whether a value is the cluster's, or gives the guest nothing."""
    gives_nothing = not value and name != "drop_capabilities"
    return gives_nothing or value == str(own)


def _backend(
    given: Mapping[str, str], requested: Mapping[str, Any], warn: Warn
) -> dict[str, Any]:
    table = constants.BACKEND
    known: dict[str, Any] = {n: v for n, v in given.items() if n in table}
    _warn_left_out(
        set(given) - set(table), "backend", "this release does not have them", warn
    )
    if "memory" in requested:
        for name in ("maxmem", "minmem", "memory"):
            known.pop(name, None)
    return known


def _warn_left_out(names: set[str], what: str, why: str, warn: Warn) -> None:
    """Warn of parameters; an export may have any number of them."""
    if not names:
        return
    listed = [f"{name:.40}" for name in sorted(names)[:_MAX_NAMED]]
    more = f" and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
    text = ", ".join(map(repr, listed))
    warn(f"{what} parameters of the export are left out, as {why}: {text}{more}")


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
