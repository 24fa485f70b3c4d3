"""Guests that run on another node than the primary node of their instance.

A migration that is cut may leave a guest at its target while the record still names the
source. Other nodes reach the data of such an instance, so before a guest is started, or
its disks are changed, these nodes are asked whether they run it: two guests that write
to the same disk destroy its data.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.model import objects
from ganeti.operations import base
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.answers import Guest

#: Hypervisors that leave copies, or notes of a departure.
LEAVE_COPIES: Final = frozenset({"kvm", "xen-hvm", "xen-pvm"})
#: Seconds that a node which is marked offline has to say whether it runs a guest.
_LEFT_S: Final = 2.0
#: Templates whose data every node of the cluster can access.
_EXTERNAL: Final = frozenset(disks.DTS_EXT_MIRROR)


class Places(NamedTuple):
    """Other nodes than the primary node: which run a guest, which do not say so."""

    runs_on: tuple[str, ...]
    silent: tuple[rpc.Result, ...]


def ask(
    ctx: base.Context, instance: objects.Instance, *, except_for: Collection[str] = ()
) -> Places:
    """Ask the other nodes that reach the data of an instance, in one parallel call.

    Nodes that are marked offline are not asked: an administrator answers for them.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        except_for: uuids of nodes that may run it.

    Returns:
        Uuids of the nodes that run it, and the failures of those that do not answer.
    """
    nodes = _others(ctx.snapshot, instance, except_for)
    if not nodes:
        return Places((), ())
    hv = instance.hypervisor
    values = ctx.snapshot.cluster.hvparams.get(hv, {})
    answers = ctx.rpc.call_nodes(nodes, calls.instance_info(instance.name, hv, values))
    silent = [each for each in answers.values() if each.failed and not each.offline]
    runs_on = [
        uuid
        for uuid, each in answers.items()
        if not each.failed and _runs(ctx, instance, uuid, each.payload)
    ]
    return Places(tuple(runs_on), tuple(silent))


def _others(
    snapshot: objects.Snapshot, instance: objects.Instance, except_for: Collection[str]
) -> list[str]:
    """Return the other nodes on which its guest could run."""
    if snapshot.disk_template(instance) in _EXTERNAL:
        reached = [uuid for uuid, node in snapshot.nodes.items() if node.vm_capable]
    else:
        reached = list(snapshot.secondary_nodes(instance))
    excluded = {instance.primary_node, *except_for}
    return [
        uuid
        for uuid in reached
        if uuid not in excluded and not snapshot.nodes[uuid].offline
    ]


def _runs(
    ctx: base.Context, instance: objects.Instance, node: str, info: Guest
) -> bool:
    """Return whether a node runs a guest, by its answer about it.

    Neither one that has shut itself down, nor a copy that waits for the word of its
    source, nor the emulator that a guest has left: that one looks as if it ran.
    """
    if not info.is_running:
        return False
    if instance.hypervisor not in LEAVE_COPIES:
        return True
    wire = encode.instance(ctx.snapshot, instance)
    asked = ctx.rpc.call_node(node, calls.instance_get_migration_status(wire))
    return asked.failed or not asked.payload.has_left


def runs_at(ctx: base.Context, instance: objects.Instance, node: str) -> bool:
    """Return whether one node runs the guest; one that does not answer does not."""
    answer = info(ctx, instance, node)
    return not answer.failed and _runs(ctx, instance, node, answer.payload)


def info(ctx: base.Context, instance: objects.Instance, node: str) -> rpc.Answer[Guest]:
    """Return the answer of one node about a guest, or a copy of it."""
    hv = instance.hypervisor
    values = ctx.snapshot.cluster.hvparams.get(hv, {})
    return ctx.rpc.call_node(node, calls.instance_info(instance.name, hv, values))


def _has_left_primary(
    ctx: base.Context, instance: objects.Instance, except_for: Collection[str]
) -> bool:
    """Return whether the guest has left its primary node for one that is not known."""
    if instance.hypervisor not in LEAVE_COPIES:
        return False
    if any(runs_at(ctx, instance, node) for node in except_for):
        return False
    wire = encode.instance(ctx.snapshot, instance)
    asked = ctx.rpc.call_node(
        instance.primary_node, calls.instance_get_migration_status(wire)
    )
    return not asked.failed and asked.payload.has_left


def refuse(
    ctx: base.Context,
    instance: objects.Instance,
    action: str,
    *,
    except_for: Collection[str] = (),
    must_answer: bool,
) -> None:
    """Refuse an action on an instance that another node than its primary node runs.

    A node that does not answer is a reason, too, if the primary node has given the
    guest up in a migration: a start at the primary node would be a second one.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        action: the action in the passive, such as ``be started``.
        except_for: uuids of nodes that may run it.
        must_answer: whether a node that does not answer is a reason to refuse;
            otherwise it is a reason for a warning.

    Raises:
        OpPrereqError: another node runs it, or does not answer.
    """
    actual, name = ask(ctx, instance, except_for=except_for), instance.name
    if actual.runs_on:
        raise errors.OpPrereqError(
            f"instance {name}: must run on no other node than its primary node"
            f" {ctx.snapshot.nodes[instance.primary_node].name} to {action}, but runs"
            f" on node {_names(ctx, actual)}; run gnt-instance migrate --cleanup"
            f" {name}, which records where it runs",
            ecodes.ECODE_STATE,
        )
    what = f"instance {name}: cannot find out whether another node runs it"
    if actual.silent and not must_answer:
        must_answer = _has_left_primary(ctx, instance, except_for)
    for failure in sorted(actual.silent, key=lambda each: each.node):
        text = failure.describe(what)
        if must_answer:
            raise errors.OpPrereqError(
                f"{text}; it must not {action} before the node answers or is marked"
                " offline",
                ecodes.ECODE_ENVIRON,
            )
        ctx.log.warn(f"{text}; going on, make sure that it does not run there")


def refuse_left(
    ctx: base.Context, instance: objects.Instance, *, is_automaton: bool
) -> None:
    """Refuse an instance that runs on a primary node that is marked offline.

    Somebody has marked it, but may have been wrong: a start elsewhere would be a second
    one. A node that does not answer is taken at the word of whoever marked it, and so
    is one that the watch over deaths has marked: it was off, and silent. A helper alone
    may have switched another machine. A person is only warned, and answers for it.

    Raises:
        OpPrereqError: the job is of an automaton, and the node says that it runs it.
    """
    node = ctx.snapshot.nodes[instance.primary_node]
    if not node.offline or node.uuid in ctx.config.node_deaths.state().marked:
        return
    hv = instance.hypervisor
    values = ctx.snapshot.cluster.hvparams.get(hv, {})
    answer = ctx.rpc.call_node(
        node.uuid, calls.instance_left(instance.name, hv, values), timeout_s=_LEFT_S
    )
    if answer.failed or not answer.payload.is_running:
        return
    text = (
        f"instance {instance.name}: runs on its primary node {node.name}, although that"
        " is marked offline, so it must not be started elsewhere: stop it there, or"
        f" switch the node off (gnt-node power off {node.name})"
    )
    if is_automaton:
        raise errors.OpPrereqError(text, ecodes.ECODE_STATE)
    ctx.log.warn(text)


def warn(ctx: base.Context, instance: objects.Instance, outcome: str) -> None:
    """Name the other nodes that run an instance to somebody who forces an action.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        outcome: the state of the guest there afterwards, such as ``goes on there``.
    """
    actual, name = ask(ctx, instance), instance.name
    if actual.runs_on:
        ctx.log.warn(
            f"instance {name}: runs on node {_names(ctx, actual)}, not on its primary"
            f" node {ctx.snapshot.nodes[instance.primary_node].name}, and {outcome};"
            f" run gnt-instance migrate --cleanup {name}, which records where it runs"
        )


def _names(ctx: base.Context, places: Places) -> str:
    """Return the names of the nodes that run it."""
    return ", ".join(sorted(ctx.snapshot.nodes[uuid].name for uuid in places.runs_on))
