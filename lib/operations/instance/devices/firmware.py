"""Copies of UEFI variables and TPMs in the records of instances.

The originals are with the guest on its node, see
`ganeti.node.hypervisor.kvm.devices.firmware`. A node's word is data: the master stores
it, and only a guest reads it.
"""

import re
from typing import Any, Final

from ganeti.base import errors
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import common
from ganeti.protocols.rpc import calls, encode

#: Largest copy, in characters; nodes refuse to send a larger one.
_MAX_COPY: Final = 512 * 1024
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)


def save(ctx: base.Context, uuid: str, node: str) -> None:
    """Store what a guest that has stopped on a node, or moved there, keeps outside it.

    A failure is a warning: the guest has the originals on that node.
    """
    if failure := _save(ctx, uuid, node, "a failover would start it with earlier ones"):
        ctx.log.warn(failure)


def require_saved(ctx: base.Context, uuid: str, node: str, consequence: str) -> None:
    """Do the same before the originals become useless.

    Raises:
        OpExecError: it failed; has the consequence of going on.
    """
    if failure := _save(ctx, uuid, node, consequence):
        raise errors.OpExecError(failure)


def _save(ctx: base.Context, uuid: str, node: str, consequence: str) -> str:
    """Return why it failed, empty if it did not."""
    instance = ctx.snapshot.instances.get(uuid)
    fields = kept_fields(ctx.snapshot, instance) if instance else {}
    if instance is None or not fields:
        return ""
    wire = encode.instance(ctx.snapshot, instance)
    answer = ctx.rpc.call_node(node, calls.guest_firmware(wire))
    what = (
        f"instance {instance.name}: its {' and '.join(fields.values())} could not be"
        f" saved; {consequence}"
    )
    if answer.failed:
        return answer.describe(what)
    texts: Any = dict(zip(("firmware_state", "tpm_state"), answer.payload, strict=True))
    if any(len(t) > _MAX_COPY or not _BASE64.fullmatch(t) for t in texts.values()):
        return f"{what}: the node sent something else"
    changes = {
        field: texts[field]
        for field in fields
        if texts[field] and texts[field] != getattr(instance, field)
    }
    if changes:
        common.set_instance(ctx, uuid, **changes)
    return ""


def kept_fields(
    snapshot: objects.Snapshot, instance: objects.Instance
) -> dict[str, str]:
    """Return the fields with copies that a guest has, and their names for people."""
    hvp = params.fill_hvparams(snapshot, instance)
    fields = {}
    if hvp.get("firmware") == "uefi":
        fields["firmware_state"] = "UEFI variables"
    if hvp.get("tpm"):
        fields["tpm_state"] = "TPM data"
    return fields
