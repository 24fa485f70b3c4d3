"""The parts of a request to import an instance that come from the export.

Values of the request win. The description is data of whoever made the export: names
of parameters that this release does not have are left out, and values are checked like
those of any request. Those that would give a guest files, devices or programs of its
node come from the request or the cluster alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import forms, hvparams
from ganeti.base.constants.parameters import params as constants
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.model.objects.export_info import ExportedDisk, ExportInfo
from ganeti.operations.parameters import typed_params

Warn = Callable[[str], None]

#: Most names in one warning.
_MAX_NAMED: Final = 10


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

    Raises:
        OpPrereqError: the export alone has a hypervisor whose guests control nodes.
    """
    hypervisor = op.hypervisor or info.hypervisor or None
    if forms.UNSEPARATED.applies(hypervisor) and not op.hypervisor:
        raise errors.OpPrereqError(
            f"instance {name}: the export has hypervisor {hypervisor}, whose instances"
            " control their node; give it with -H if you trust the export",
            ecodes.ECODE_INVAL,
        )
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
        if name not in requested and not _is_trusted(table[name], value, own[name])
    }
    why = (
        "they name files, devices or programs of the node, with other values than the"
        " cluster's; give them with -H if you trust the export"
    )
    _warn_left_out(refused, what, why, warn)
    return {name: value for name, value in known.items() if name not in refused}


def _is_trusted(row: hvparams.HvParam, value: str, own: Any) -> bool:
    """Return whether a value is the cluster's, or gives the guest nothing."""
    if row.root is None or value == str(own):
        return True
    try:
        typed = typed_params.coerce(value, row.type, "")
    except errors.TypeEnforcementError:
        return False
    return typed == own or not row.root.applies(typed)


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
