"""Parts of a request for a new instance: its name, tags and allocation request."""

import re
from collections.abc import Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants import tags as tag_constants
from ganeti.master import iallocator
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import base
from ganeti.operations.instance.disks import disk_specs
from ganeti.operations.parameters import typed_params

_TAG: Final = re.compile(r"^[\w.+*/:@-]+$")


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
        exclusive=bool(cluster.ndparams.get("exclusive_storage")),
    )
    if any(spec.adopt for spec in specs):
        raise errors.OpPrereqError(
            f"instance {name}: disks are adopted on a named node, without allocator",
            ecodes.ECODE_INVAL,
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
        hypervisor=op.hypervisor or snapshot.cluster.enabled_hypervisors[0],
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
        raise errors.OpPrereqError(
            f"instance {name}: its name resolves to {full}, which does not begin with"
            " it",
            ecodes.ECODE_INVAL,
        )
    return full, addresses


def check_tags(tags: Sequence[str], instance: str) -> None:
    """Refuse malformed tags of a new instance, and too many of them."""
    most, count = tag_constants.MAX_TAGS_PER_OBJ, len(set(tags))
    if count > most:
        raise errors.OpPrereqError(
            f"instance {instance}: wanted at most {most} tags, found {count}",
            ecodes.ECODE_INVAL,
        )
    for tag in tags:
        if not _TAG.fullmatch(tag) or len(tag) > tag_constants.MAX_TAG_LEN:
            raise errors.OpPrereqError(
                f"instance {instance}: tag {tag!r} is too long or has characters"
                " other than letters, digits and _.+*/:@-",
                ecodes.ECODE_INVAL,
            )
