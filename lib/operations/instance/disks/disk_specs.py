"""Disks in requests: conversion of requested parameters to disk records."""

import dataclasses
import itertools
import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes, misc
from ganeti.base.constants.parameters import params
from ganeti.base.constants.protocols import hooks
from ganeti.base.errors import refusal
from ganeti.base.text import messages
from ganeti.model import objects
from ganeti.model.objects import params as object_params
from ganeti.operations import base
from ganeti.operations.instance.disks import mirror_records
from ganeti.operations.parameters import typed_params

_DTS_MAY_ADOPT: Final = ("blockdev", "plain")

_MAX_NAME: Final = 255
#: Directory of disk files in a Gluster volume.
_GLUSTER_DIR: Final = "ganeti"


@dataclasses.dataclass(frozen=True)
class DiskRequest:
    """One requested disk.

    Attributes:
        size: MiB; 0 while that of an adopted volume is unknown.
        mode: access mode.
        name: its name, or None.
        spindles: physical volumes that it gets, with exclusive storage.
        vg: volume group, None for the cluster's.
        metavg: volume group of a mirror's metadata, None for the parameter's.
        adopt: name of the volume, or path of the device, to take over; None to create.
        provider: of external storage, None for other templates.
        access: path of the data, None for the parameter's.
        parameters: of the provider.
    """

    size: int
    mode: str = "rw"
    name: str | None = None
    spindles: int | None = None
    vg: str | None = None
    metavg: str | None = None
    adopt: str | None = None
    provider: str | None = None
    access: str | None = None
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def like(cls, disk: objects.Disk, external: Mapping[str, Any]) -> "DiskRequest":
        """Return a request for a disk with the size and names of another one.

        ``external`` has the fields that `external_fields` returns.
        """
        return cls(disk.size, disk.mode, disk.name, disk.spindles, **external)


#: Names and values of parameters of providers: they become environment variables.
_PARAMETER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MAX_PARAMETER: Final = 4096
#: parameter -> templates that have it
_APPLIES: Final[dict[str, tuple[str, ...]]] = {
    "adopt": _DTS_MAY_ADOPT,
    "vg": disks.DTS_LVM,
    "metavg": disks.DTS_DRBD,
    "provider": ("ext",),
    "access": disks.DTS_HAVE_ACCESS,
}


def parse(
    spec: Mapping[str, Any], what: str, *, template: str, exclusive: bool = False
) -> DiskRequest:
    """Return the requested disk.

    Args:
        spec: the request.
        what: the disk, for messages.
        template: its disk template.
        exclusive: whether its nodes have exclusive storage.

    Raises:
        OpPrereqError: unknown parameters, no size, or values of the wrong type.
    """
    # Names that are unknown here are those of the provider; see `external_fields`.
    known = spec
    if template == "ext":
        known = {name: value for name, value in spec.items() if name in params.IDISK}
    values = typed_params.typed(known, params.IDISK, what)
    _check_applies(values, what, template, exclusive=exclusive)
    size, adopt = values.get("size"), values.get("adopt")
    if adopt and size:
        raise refusal(f"{what}: has the size of what it adopts, found size {size}")
    if not adopt and template in disks.DTS_MUST_ADOPT:
        raise refusal(
            f"{what}: disks of template {template} are adopted; give adopt=PATH, below"
            f" {disks.ADOPTABLE_BLOCKDEV_ROOT}"
        )
    if adopt is None and (size is None or size < 1):
        raise refusal(f"{what}: wanted a size of 1 MiB or more, found {size}")
    return DiskRequest(
        size=size or 0,
        mode=check_mode(values.get("mode", "rw"), what),
        name=check_name(values.get("name"), what),
        spindles=values.get("spindles"),
        vg=values.get("vg") or None,
        metavg=values.get("metavg") or None,
        adopt=adopt or None,
        **external_fields(spec, what, template=template),
    )


def external_fields(
    spec: Mapping[str, Any], what: str, *, template: str
) -> dict[str, Any]:
    """Return provider, access and provider's parameters, as fields of `DiskRequest`.

    Args:
        spec: the request, or the parameters of a conversion; every name that is no
            parameter of disks in general is one of the provider.
        what: the disk, for messages.
        template: its disk template.

    Raises:
        OpPrereqError: no provider, or values that cannot be passed to one.
    """
    access = spec.get("access") or None
    modes = disks.DISK_VALID_ACCESS_MODES
    if access is not None and access not in modes:
        raise refusal(f"{what}: wanted access {' or '.join(modes)}, found {access!r}")
    if template != "ext":
        return {"access": access}
    provider = str(spec.get("provider") or "")
    if not re.fullmatch(hooks.EXT_PLUGIN_MASK, provider):
        raise refusal(
            f"{what}: disks of template ext need provider=NAME, found {provider!r}; see"
            " gnt-storage diagnose"
        )
    given = {name: value for name, value in spec.items() if name not in params.IDISK}
    return {
        "access": access,
        "provider": provider,
        "parameters": provider_parameters(given, what),
    }


def provider_parameters(given: Mapping[str, Any], what: str) -> dict[str, str]:
    """Return parameters for a provider of external storage, as texts.

    Raises:
        OpPrereqError: a name or value cannot be passed to a provider.
    """
    for name, value in given.items():
        text = str(value)
        if not _PARAMETER.fullmatch(name):
            raise refusal(f"{what}: {name!r} cannot be a parameter of a provider")
        if not text.isprintable() or len(text) > _MAX_PARAMETER:
            raise refusal(
                f"{what}: parameter {name}: wanted at most {_MAX_PARAMETER} printable"
                f" characters, found {text[:40]!r}"
            )
    return {name: str(value) for name, value in given.items()}


def _check_applies(
    values: Mapping[str, Any], what: str, template: str, *, exclusive: bool
) -> None:
    for name, templates in _APPLIES.items():
        if values.get(name) and template not in templates:
            raise refusal(
                f"{what}: {name} does not apply to template {template}, only to"
                f" {', '.join(templates)}"
            )
    if values.get("dev_type") not in (None, "", template):
        raise refusal(
            f"{what}: wanted disk type {template}, that of the other disks, found"
            f" {values['dev_type']}"
        )
    spindles = values.get("spindles")
    if spindles is not None and not exclusive:
        raise refusal(f"{what}: spindles can only be given with exclusive storage")
    if spindles is not None and spindles < 1:
        raise refusal(f"{what}: wanted 1 spindle or more, found {spindles}")


def check_mode(mode: str, what: str) -> str:
    """Return an access mode, ``rw`` or ``ro``.

    Raises:
        OpPrereqError: it is neither of them.
    """
    if mode not in ("rw", "ro"):
        raise refusal(f"{what}: wanted mode rw or ro, found {mode!r}")
    return mode


def check_name(name: str | None, what: str) -> str | None:
    """Return a device name; ``none`` and an empty one mean no name.

    Raises:
        OpPrereqError: it is too long, not printable, or looks like an index or a uuid.
    """
    if name is None or name == "" or name.lower() == typed_params.NONE:
        return None
    if not name.isprintable():
        raise refusal(f"{what}: wanted a name of printable characters, found {name!r}")
    # Requests address devices by index, name or uuid, so a name must look like a name.
    is_number = name.lstrip("-").isdigit()
    if is_number or len(name) > _MAX_NAME or re.fullmatch(misc.UUID_REGEX, name):
        raise refusal(
            f"{what}: name {name!r:.100} is too long or looks like an index or a uuid:"
            f" wanted at most {_MAX_NAME} characters, not a number alone"
        )
    return name


def parse_all(
    specs: Sequence[Mapping[str, Any]],
    template: str,
    instance: str,
    *,
    exclusive: bool = False,
) -> list[DiskRequest]:
    """Return the requested disks of a new instance.

    Args:
        specs: the requests.
        template: disk template of the instance.
        instance: its name, for messages.
        exclusive: whether its nodes have exclusive storage.

    Raises:
        OpPrereqError: too many disks, a name twice, disks of a diskless instance, or
            only some disks are adopted.
    """
    if template == "diskless" and specs:
        raise refusal(
            f"instance {instance}: template diskless has no disks, found {len(specs)}"
        )
    if template != "diskless" and not specs:
        raise refusal(
            f"instance {instance}: template {template} needs at least one disk"
        )
    if len(specs) > disks.MAX_DISKS:
        raise refusal(
            f"instance {instance}: wanted at most {disks.MAX_DISKS} disks,"
            f" found {len(specs)}"
        )
    parsed = [
        parse(
            spec,
            f"instance {instance}: disk {index}",
            template=template,
            exclusive=exclusive,
        )
        for index, spec in enumerate(specs)
    ]
    if 0 < sum(disk.adopt is not None for disk in parsed) < len(parsed):
        raise refusal(f"instance {instance}: either all disks are adopted, or none")
    check_unique_names([disk.name for disk in parsed], instance, "disk")
    return parsed


def check_unique_names(names: Sequence[str | None], instance: str, kind: str) -> None:
    """Refuse a device name that occurs twice.

    Raises:
        OpPrereqError: one does; names the first one.
    """
    for name in messages.repeated(filter(None, names)):
        raise errors.OpPrereqError(
            f"instance {instance}: two {kind}s are named {name!r}",
            ecodes.ECODE_NOTUNIQUE,
        )


def check_template(snapshot: objects.Snapshot, template: str, instance: str) -> None:
    """Refuse a template that is not enabled or not offered.

    Raises:
        OpPrereqError: it is not; lists those that are.
    """
    enabled = snapshot.cluster.enabled_disk_templates
    if template not in enabled:
        raise refusal(
            f"instance {instance}: disk template {template} is not enabled in this"
            f" cluster; enabled are {', '.join(enabled)}"
        )
    offered = disks.OFFERED_DISK_TEMPLATES
    if template not in offered:
        raise refusal(
            f"instance {instance}: disk template {template} is not offered by this"
            f" release; offered are {', '.join(offered)}"
        )


def directory(
    snapshot: objects.Snapshot, template: str, instance: str, custom: str | None
) -> str:
    """Return the directory of a new instance's disk files, empty for diskless.

    Args:
        snapshot: for the cluster's base directories.
        template: disk template.
        instance: instance name.
        custom: requested directories between base and instance name.

    Raises:
        OpPrereqError: there is no base directory, or the custom one is outside of it.
    """
    cluster = snapshot.cluster
    bases = {
        "file": cluster.file_storage_dir,
        "sharedfile": cluster.shared_file_storage_dir,
    }
    if template not in bases:
        return ""
    top = bases[template]
    if not top:
        raise errors.OpPrereqError(
            f"instance {instance}: the cluster has no directory for {template} disks;"
            " an administrator can set one with gnt-cluster modify",
            ecodes.ECODE_STATE,
        )
    path = os.path.normpath(os.path.join(top, custom or "", instance))
    # The path has no `..` any more, so one outside begins in another way.
    if custom and (os.path.isabs(custom) or not path.startswith(f"{top}/")):
        raise refusal(
            f"instance {instance}: file storage directory must be a path below {top},"
            f" found {custom!r}"
        )
    return path


class FilePlace(NamedTuple):
    """Directory and driver of disks that are files; other new disks beside them."""

    directory: str
    driver: str | None
    beside: Sequence[objects.Disk] = ()


def records(
    ctx: base.Context,
    template: str,
    specs: Sequence[DiskRequest],
    *,
    nodes: Sequence[str],
    owner: str,
    files: FilePlace,
    first_index: int = 0,
) -> tuple[objects.Disk, ...]:
    """Return disk records with fresh uuids; nothing is created on nodes.

    Args:
        ctx: dependencies of the opcode; uuids are reserved for its owner.
        template: disk template.
        specs: the requested disks.
        nodes: uuids of the primary node and, for mirrored disks, of the other one.
        owner: uuid of the instance.
        files: where the disks are, if they are files.
        first_index: position of the first disk in the instance.
    """
    now = ctx.clock.time()
    made = []
    gluster = _gluster_files(ctx.snapshot, owner, first_index, files.beside)
    for index, spec in enumerate(specs, first_index):
        uuid = ctx.config.reserve_uuid(ctx.owner)
        made.append(
            _placed(
                ctx,
                spec,
                nodes,
                objects.Disk(
                    uuid=uuid,
                    serial_no=1,
                    ctime=now,
                    mtime=now,
                    dev_type=template,
                    logical_id=_logical_id(
                        ctx.snapshot.cluster,
                        spec,
                        _name(template, uuid, index, gluster),
                        where=_GLUSTER_DIR
                        if template == "gluster"
                        else files.directory,
                        template=template,
                        driver=files.driver,
                    ),
                    # Every node reaches external storage, so such a disk belongs to
                    # none.
                    nodes=() if template in disks.DTS_EXT_MIRROR else (nodes[0],),
                    iv_name=f"disk/{index}",
                    size=spec.size,
                    mode=spec.mode,
                    name=spec.name,
                    spindles=spec.spindles,
                    params=_own_parameters(spec) | _pool(ctx.snapshot, template, nodes),
                ),
            )
        )
    return tuple(made)


def _name(template: str, uuid: str, index: int, gluster: Iterator[str]) -> str:
    """Return the name of a new disk on its storage."""
    if template == "gluster":
        return next(gluster)
    if template in disks.DTS_LVM:
        return f"{uuid}.disk{index}"
    return f"{uuid}.{template}.disk{index}"


def _gluster_files(
    snapshot: objects.Snapshot,
    owner: str,
    first_index: int,
    beside: Sequence[objects.Disk],
) -> Iterator[str]:
    """Yield names of files that the instance does not have, by the wanted index on."""
    instance = snapshot.instances.get(owner)
    present = snapshot.instance_disks(instance) if instance is not None else ()
    taken = {str(disk.logical_id[-1]) for disk in (*present, *beside)}
    for index in itertools.count(first_index):
        name = f"{owner}.{index}"
        if f"{_GLUSTER_DIR}/{name}" not in taken:
            yield name


def _pool(
    snapshot: objects.Snapshot, template: str, nodes: Sequence[str]
) -> dict[str, Any]:
    """Return the pool of a new image, which stays there when the default changes."""
    if template != "rbd":
        return {}
    group = snapshot.nodes[nodes[0]].group
    return {"pool": object_params.fill_diskparams(snapshot, group, template)["pool"]}


def preview(
    disk: objects.Disk, template: str, external: Mapping[str, Any]
) -> objects.Disk:
    """Return a disk as it is after a conversion, for checks; its place is not chosen.

    Args:
        disk: the present disk.
        template: the template to convert to.
        external: fields that `external_fields` returns.
    """
    spec = DiskRequest.like(disk, external)
    place = (spec.provider or template, disk.uuid)
    return disk.replace(
        dev_type=template, logical_id=place, params=_own_parameters(spec)
    )


def _own_parameters(spec: DiskRequest) -> dict[str, Any]:
    """Return the parameters that the disk does not inherit."""
    return {**({"access": spec.access} if spec.access else {}), **spec.parameters}


def _placed(
    ctx: base.Context, spec: DiskRequest, nodes: Sequence[str], disk: objects.Disk
) -> objects.Disk:
    """Return a disk; a mirrored one gets its volumes on both nodes."""
    if not mirror_records.is_mirror(disk):
        return disk
    group, name = disk.logical_id
    metadata = spec.metavg or mirror_records.meta_group(ctx.snapshot, nodes[0], group)
    return mirror_records.record(
        ctx,
        disk,
        nodes,
        groups=(group, metadata),
        names=(f"{name}_data", f"{name}_meta"),
    )


def _logical_id(
    cluster: objects.Cluster,
    spec: DiskRequest,
    name: str,
    *,
    where: str,
    template: str,
    driver: str | None,
) -> tuple[str, ...]:
    if template in disks.DTS_LVM:
        return volume_group(cluster, spec), name
    if template == "blockdev":
        return "manual", os.path.normpath(spec.adopt or "")
    if template == "ext":
        return spec.provider or "", name
    if template == "rbd":
        return template, name
    return driver or "loop", f"{where}/{name}"


def volume_group(cluster: objects.Cluster, spec: DiskRequest) -> str:
    """Return the volume group of a disk: the requested one, else the cluster's.

    Raises:
        OpPrereqError: there is none.
    """
    group = spec.vg or cluster.volume_group_name
    if not group:
        raise errors.OpPrereqError(
            "the cluster has no volume group for disks; an administrator can set one"
            " with gnt-cluster modify --vg-name",
            ecodes.ECODE_STATE,
        )
    return group
