"""Parts of a request for a new instance: name, tags, key, allocation, record.

A repeated request with the same key finds the instance that the first one made.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes, misc
from ganeti.base.constants.protocols.os import OS_IMAGE_PARAMETER
from ganeti.base.errors import refusal
from ganeti.master import iallocator, jqueue
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import base
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.disks import disk_specs
from ganeti.operations.parameters import cloud_init, typed_params

_TAG: Final = re.compile(r"^[\w.+*/:@-]+$")

#: Parameters of a creation that do not change the instance that results.
_UNRELATED: Final = frozenset(
    {
        *("OP_ID", "comment", "debug_level", "depends", "dry_run", "if_serial"),
        *("reason", "request_key", "opportunistic_locking", "wait_for_sync"),
        *("osparams_private", "osparams_secret", "priority"),
    }
)


def allocation_request(
    snapshot: objects.Snapshot,
    op: opcodes.InstanceCreate,
    name: str,
    template: str,
    restrict_to: Sequence[str] | None,
) -> iallocator.Allocate:
    """Return the allocation request for a creation request.

    Raises:
        OpPrereqError: wrong disks or backend parameters, or an unknown node group.
    """
    group = lookup.expand_group(snapshot, op.group_name) if op.group_name else None
    cluster = snapshot.cluster
    specs = disk_specs.parse_all(
        op.disks,
        template,
        name,
        # The nodes are not chosen yet, so the value of the cluster counts.
        exclusive=bool(cluster.ndparams.get("exclusive_storage")),
    )
    if any(spec.adopt for spec in specs):
        raise refusal(
            f"instance {name}: disks are adopted on a named node, without allocator"
        )
    given = typed_params.merge(
        {}, typed_params.backend(op.beparams, allow_default=True)
    )
    backend = params.beparams_for(snapshot.cluster, given)
    return iallocator.Allocate(
        name=name,
        disk_template=template,
        tags=op.tags,
        os=op.os_type or "",
        vcpus=backend["vcpus"],
        memory=backend["maxmem"],
        spindle_use=backend["spindle_use"],
        disks=[
            {"size": disk.size, "mode": disk.mode}
            | ({} if disk.spindles is None else {"spindles": disk.spindles})
            for disk in specs
        ],
        nics=[
            {"mac": nic.get("mac") or "auto", "ip": nic.get("ip")} for nic in op.nics
        ],
        hypervisor=hypervisor_of(snapshot, op),
        group_name=snapshot.nodegroups[group].name if group else None,
        restrict_to=restrict_to,
    )


def resolve(ctx: base.Context, name: str) -> tuple[str, Sequence[str]]:
    """Return the full name and the addresses of an instance name.

    Raises:
        OpPrereqError: it does not resolve, or resolves to a name with another
            beginning.
    """
    try:
        full, addresses = ctx.lookup_host(name)
    except errors.ResolverError as err:
        raise errors.OpPrereqError(
            f"instance {name}: its name does not resolve: {err.args[-1]}",
            ecodes.ECODE_RESOLVER,
        ) from err
    if full != name and not full.startswith(f"{name}."):
        raise refusal(
            f"instance {name}: its name resolves to {full}, which does not begin with"
            " it"
        )
    return full, addresses


def check_tags(tags: Sequence[str], instance: str) -> None:
    """Refuse malformed tags of a new instance, and too many of them."""
    most, count = misc.MAX_TAGS_PER_OBJ, len(set(tags))
    if count > most:
        raise refusal(f"instance {instance}: wanted at most {most} tags, found {count}")
    for tag in tags:
        if not _TAG.fullmatch(tag) or len(tag) > misc.MAX_TAG_LEN:
            raise refusal(
                f"instance {instance}: tag {tag!r} is too long or has characters"
                " other than letters, digits and _.+*/:@-"
            )


def check_seed(op: opcodes.InstanceCreate, name: str) -> None:
    """Refuse parameters of the cloud-init seed that cannot be stored or used."""
    what = f"instance {name}"
    cloud_init.check(op.osparams, what)
    cloud_init.check(op.osparams_private, what)
    cloud_init.refuse_unstored(op.osparams_secret, what)


def require_os(op: opcodes.InstanceCreate, name: str) -> None:
    """Refuse a request without an operating system, or an image over content."""
    given = (op.osparams, op.osparams_private, op.osparams_secret)
    has_image = any(values and values.get(OS_IMAGE_PARAMETER) for values in given)
    if op.no_install:
        return
    if op.os_type is None and not has_image:
        raise refusal(f"instance {name}: no operating system given")
    if has_image and any(disk.get("adopt") for disk in op.disks):
        raise refusal(
            f"instance {name}: OS parameter {OS_IMAGE_PARAMETER}: an image would"
            " overwrite the adopted disks; leave it out, or do not install it"
            " (no_install)"
        )


def os_parameters(
    snapshot: objects.Snapshot, op: opcodes.InstanceCreate, instance: objects.Instance
) -> dict[str, Any]:
    """Return all parameters for the scripts of the OS."""
    return (
        params.fill_osparams(snapshot, instance)
        | params.fill_osparams_private(snapshot, instance)
        | (op.osparams_secret or {})
    )


def hypervisor_of(snapshot: objects.Snapshot, op: opcodes.InstanceCreate) -> str:
    """Return the requested hypervisor, or the cluster's first one."""
    return op.hypervisor or snapshot.cluster.enabled_hypervisors[0]


def record(
    ctx: base.Context,
    op: opcodes.InstanceCreate,
    *,
    uuid: str,
    name: str,
    primary: str,
    auto_ip: str | None,
    request: objects.CreationRequest | None,
) -> objects.Instance:
    """Return the record of a new instance without its disks; reserve its addresses.

    Args:
        ctx: dependencies of the opcode.
        op: the request.
        uuid: of the new instance.
        name: its name.
        primary: uuid of its primary node.
        auto_ip: address of the name, for NICs that ask for it.
        request: the record of the request.

    Raises:
        OpPrereqError: wrong parameters or NICs.
        TypeEnforcementError: wrong types.
    """
    snapshot, group = ctx.snapshot, ctx.snapshot.nodes[primary].group
    nics = tuple(
        nic_specs.build(
            ctx,
            spec,
            group=group,
            what=f"instance {name}: nic {index}",
            auto_ip=auto_ip,
        )
        for index, spec in enumerate(op.nics)
    )
    nic_specs.check_all(nics, name)
    now, hypervisor = ctx.clock.time(), hypervisor_of(snapshot, op)
    hv = typed_params.hypervisor(hypervisor, op.hvparams, allow_default=True)
    backend = typed_params.backend(op.beparams, allow_default=True)
    instance = objects.Instance(
        uuid=uuid,
        serial_no=1,
        ctime=now,
        mtime=now,
        name=name,
        primary_node=primary,
        os=op.os_type or "",
        hypervisor=hypervisor,
        hvparams=typed_params.merge({}, hv),
        beparams=typed_params.merge({}, backend),
        osparams={k: str(v) for k, v in op.osparams.items()},
        osparams_private=dict(op.osparams_private or {}),
        # Until the start at the end: nobody else must start it before it is complete.
        admin_state="down",
        admin_state_source="admin",
        nics=nics,
        disks_active=False,
        tags=tuple(sorted(set(op.tags))),
        request=request,
    )
    if op.conflicts_check:
        nic_specs.take_addresses(ctx, instance, group=group)
    return _without_defaults(snapshot, instance) if op.identify_defaults else instance


def _without_defaults(
    snapshot: objects.Snapshot, instance: objects.Instance
) -> objects.Instance:
    bare = instance.replace(hvparams={}, beparams={}, osparams={})
    hv = params.fill_hvparams(snapshot, bare)
    be = params.fill_beparams(snapshot, bare)
    os_params = params.fill_osparams(snapshot, bare)
    return instance.replace(
        hvparams={k: v for k, v in instance.hvparams.items() if hv.get(k) != v},
        beparams={k: v for k, v in instance.beparams.items() if be.get(k) != v},
        osparams={k: v for k, v in instance.osparams.items() if os_params.get(k) != v},
    )


def fingerprint(op: opcodes.InstanceCreate) -> str:
    """Return a digest of the parameters that determine the instance."""
    given = {
        name: value
        for name, value in opcodes.encode(op).items()
        if name not in _UNRELATED
    }
    if not given.get("no_nics"):
        # Requests of releases without this parameter have the digests without it.
        given.pop("no_nics", None)
    data = msgspec.json.encode(given, order="deterministic")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def request_of(op: opcodes.InstanceCreate) -> objects.CreationRequest | None:
    """Return the record of a request, None if it has no key."""
    if op.request_key is None:
        return None
    return objects.CreationRequest(key=op.request_key, digest=fingerprint(op))


def find_repeated(
    ctx: base.Context, op: opcodes.InstanceCreate
) -> objects.Instance | None:
    """Return the instance that an earlier request with the same key made.

    Otherwise the key is reserved until the opcode ends.

    Raises:
        LockTimeout: another job is creating it; try again later.
        OpPrereqError: the key belongs to a request with other parameters.
    """
    if op.request_key is None:
        return None
    try:
        # Before the look-up: of two jobs with one key, the second one then waits for
        # the end of the first one.
        ctx.config.reserve(ctx.owner, "creation", op.request_key)
    except errors.ReservationError as err:
        raise jqueue.LockTimeout(str(err)) from err
    uuid = ctx.snapshot.request_owner(op.request_key)
    if uuid is None:
        return None
    instance = ctx.snapshot.instances[uuid]
    if instance.request is None or instance.request.digest != fingerprint(op):
        raise errors.OpPrereqError(
            f"request_key {op.request_key}: instance {instance.name} was made by a"
            " request with this key and other parameters; use another key",
            ecodes.ECODE_NOTUNIQUE,
        )
    return instance


def repeated_instance(
    ctx: base.Context, op: opcodes.InstanceCreate, repeated: objects.Instance
) -> objects.Instance:
    """Return the locked instance of a repeated request; log that it is there already.

    Raises:
        OpPrereqError: it was removed.
    """
    instance = ctx.snapshot.instances.get(repeated.uuid)
    if instance is None:
        raise errors.OpPrereqError(
            f"instance {repeated.name}: was removed while the job waited for locks",
            ecodes.ECODE_NOENT,
        )
    ctx.log.info(
        f"a request with the key {op.request_key} has already made instance"
        f" {instance.name}"
    )
    if instance.is_unfinished:
        ctx.log.warn(
            f"instance {instance.name}: its installation did not finish; reinstall"
            " it, or remove it and repeat the request"
        )
    return instance
