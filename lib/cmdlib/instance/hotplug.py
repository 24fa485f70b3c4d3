"""Hot-plug of changed devices into a running guest, where it is supported."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti import objects
from ganeti.cmdlib import base
from ganeti.cmdlib.instance.modify_nics import NicStep
from ganeti.rpc import encode

_ACTIONS: Final = {
    "add": "hotadd",
    "attach": "hotadd",
    "remove": "hotremove",
    "detach": "hotremove",
    "modify": "hotmod",
}


def apply(
    ctx: base.Context,
    instance: objects.Instance,
    disk_steps: Sequence[NicStep],
    nic_steps: Sequence[NicStep],
) -> list[tuple[str, Any]]:
    """Plug changes into a running guest; failed ones apply at the next start.

    Returns:
        One ``hotplug`` row per device for the opcode's result.
    """
    node = instance.primary_node
    wire = encode.instance(ctx.snapshot, instance)
    supported = ctx.rpc.call_one("hotplug_supported", node, wire)
    if supported.failed:
        ctx.log.warn(
            "the running guest keeps its devices until its next start: node"
            f" {supported.node}: {supported.fail_msg}"
        )
        return []
    report: list[tuple[str, Any]] = []
    for kind, steps in (("disk", disk_steps), ("nic", nic_steps)):
        for step in steps:
            if kind == "disk" and step.action == "modify":
                continue
            device, extra = _device(ctx, instance, kind, step)
            result = ctx.rpc.call_one(
                "hotplug_device",
                node,
                wire,
                _ACTIONS[step.action],
                kind,
                device,
                extra,
                step.index,
            )
            if result.failed:
                ctx.log.warn(result.describe(f"cannot hot-plug {kind}/{step.index}"))
            outcome = "failed" if result.failed else "done"
            report.append((f"{kind}/{step.index}", f"hotplug:{outcome}"))
    return report


def _device(
    ctx: base.Context, instance: objects.Instance, kind: str, step: NicStep
) -> tuple[dict[str, Any], Any]:
    if kind == "nic":
        return msgspec.to_builtins(encode.nic(ctx.snapshot, step.device)), None
    wire = encode.disk(ctx.snapshot, step.device, instance)
    if step.action not in ("add", "attach"):
        return wire, None
    result = ctx.rpc.call_one(
        "blockdev_assemble",
        instance.primary_node,
        wire,
        encode.instance(ctx.snapshot, instance),
        True,
        step.index,
    )
    return wire, result.payload
