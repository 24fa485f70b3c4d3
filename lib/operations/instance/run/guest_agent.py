"""The agent in a guest, as operations use it. A guest without one is no failure."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base.net import guest_addresses
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.protocols.rpc import calls, encode

#: Longest time that a guest is frozen for snapshots, in seconds.
FREEZE_S: Final = 60.0


def has_agent(snapshot: objects.Snapshot, instance: objects.Instance) -> bool:
    """Return whether a guest has a channel of its agent."""
    return bool(params.fill_hvparams(snapshot, instance).get("use_guest_agent"))


@contextlib.contextmanager
def frozen(
    ctx: base.Context, instance: objects.Instance, *, is_running: bool
) -> Iterator[None]:
    """Keep the file systems of a running guest frozen, if it has an agent.

    The node thaws them after `FREEZE_S` in any case.
    """
    if not is_running or not has_agent(ctx.snapshot, instance):
        yield
        return
    node, wire = instance.primary_node, encode.instance(ctx.snapshot, instance)
    what = f"instance {instance.name}: snapshots are as after a power failure"
    result = ctx.rpc.call_node(node, calls.guest_freeze(wire, FREEZE_S))
    ctx.warn_failed(result, f"{what}, because its agent did not freeze it")
    try:
        yield
    finally:
        # Also after a lost answer: the guest may be frozen then.
        if not result.failed or result.is_lost:
            thawed = ctx.rpc.call_node(node, calls.guest_thaw(wire))
            unthawed = f"instance {instance.name}: could not be thawed"
            if not ctx.warn_failed(thawed, unthawed) and thawed.payload is not True:
                ctx.log.warn(f"{what}, because they took more than {FREEZE_S:g} s")


def addresses(
    ctx: base.Context, instances: Sequence[objects.Instance]
) -> dict[str, list[dict[str, Any]]]:
    """Return instance name -> interfaces as the guest reports them.

    There is one call per node and hypervisor. Guests that report nothing are left out.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for each in instances:
        if has_agent(ctx.snapshot, each):
            key = (each.primary_node, each.hypervisor)
            names.setdefault(key, []).append(each.name)
    reported = {}
    for (node, hypervisor), asked in names.items():
        answer = ctx.rpc.call_node(node, calls.guest_addresses(hypervisor, asked))
        payload: Mapping[str, Any] = {} if answer.failed else answer.payload
        for name in asked:
            if rows := guest_addresses.checked(payload.get(name)):
                reported[name] = [
                    {"name": interface, "mac": mac, "addresses": texts}
                    for interface, mac, texts in rows
                ]
    return reported
