"""Copies of UEFI variables in the records of instances.

The variables themselves are with the guest on its node, see
`ganeti.hypervisor.kvm.firmware`. A node's word is data: the master stores it, and only
a guest reads it.
"""

import re
from typing import Any, Final

from ganeti import objects
from ganeti.cmdlib import base
from ganeti.cmdlib.instance import common
from ganeti.objects import params
from ganeti.rpc import encode

#: Largest copy, in characters; nodes refuse to send a larger one.
_MAX_COPY: Final = 512 * 1024
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)


def save(ctx: base.Context, uuid: str, node: str) -> None:
    """Store the variables of a guest that has stopped on a node, or moved there.

    A failure is a warning: the guest has its variables on that node.
    """
    instance = ctx.snapshot.instances.get(uuid)
    if instance is None or not has_variables(ctx.snapshot, instance):
        return
    wire = encode.instance(ctx.snapshot, instance)
    answer = ctx.rpc.call_one("guest_firmware", node, wire)
    what = (
        f"instance {instance.name}: its UEFI variables could not be saved; a failover"
        " would start it with earlier ones"
    )
    if answer.failed:
        ctx.log.warn(answer.describe(what))
        return
    text: Any = answer.payload
    if len(text) > _MAX_COPY or not _BASE64.fullmatch(text):
        ctx.log.warn(f"{what}: the node sent something else")
        return
    if text and text != instance.firmware_state:
        common.set_instance(ctx, uuid, firmware_state=text)


def has_variables(snapshot: objects.Snapshot, instance: objects.Instance) -> bool:
    """Return whether a guest has UEFI variables."""
    return params.fill_hvparams(snapshot, instance).get("firmware") == "uefi"
