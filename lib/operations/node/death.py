"""The last look at a node before it counts as dead, with its lock held.

The job of the act may have waited for locks for hours, in which the node was repaired,
or a person stepped in.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.text import messages
from ganeti.model import objects
from ganeti.operations.base import Context
from ganeti.protocols.rpc import calls

#: Seconds that the node daemon has to answer.
_ANSWER_S: Final = 2.0
#: Nodes that are asked for heartbeats, the master among them.
_READERS: Final = 3
#: Seconds between two looks at a heartbeat of an unknown run: one is written every
#: 2 seconds, and read every 2 seconds.
_LOOK_S: Final = 6.0

#: Seconds for which the word of a person about a node counts without a look.
_FRESH_S: Final = 10.0
#: Seconds that a node has to list its guests.
_GUESTS_S: Final = 5.0

#: Run and number of a heartbeat.
Beat = tuple[str, int]


def check(ctx: Context, node: objects.Node) -> None:
    """Check that a node does not answer, and that nobody has stepped in.

    Raises:
        OpPrereqError: it answers, a person works on it, or deaths of nodes are not to
            be handled at the moment.
    """
    problem = _problem(ctx, node)
    if problem:
        raise errors.OpPrereqError(f"node {node.name}: {problem}", ecodes.ECODE_STATE)


def _problem(ctx: Context, node: objects.Node) -> str:
    cluster = ctx.snapshot.cluster
    if cluster.automation_freeze:
        return "automation is frozen; gnt-cluster thaw ends that"
    is_given_up = ctx.config.node_deaths.state().is_given_up
    if is_given_up or not cluster.node_death:
        return "deaths of nodes are not handled (gnt-cluster modify --node-death=yes)"
    if node.offline or node.drained:
        state = "marked offline" if node.offline else "drained"
        return f"it was {state} by now, so a person works on it"
    result = ctx.rpc.call_node(node.uuid, calls.version(), timeout_s=_ANSWER_S)
    if result.refused or not result.is_silent:
        return "its node daemon answers, so it is alive"
    return ""


def check_guests(
    ctx: Context, node: objects.Node, reason: Sequence[tuple[str, str, int]]
) -> None:
    """Check that no guests came back while the request to mark a node offline waited.

    Instances of nodes that are marked offline are started elsewhere. Right after the
    request nothing is checked: whoever marks a node as offline has looked at it.

    Args:
        ctx: dependencies of the opcode.
        node: to be marked.
        reason: reason trail of the opcode, whose last entry is of the submission.

    Raises:
        OpPrereqError: the node runs instances whose primary node it is.
    """
    waited_s = ctx.clock.time() - reason[-1][2] / 1e9 if reason else 0.0
    if waited_s <= _FRESH_S:
        return
    snapshot = ctx.snapshot
    hypervisors = list(snapshot.cluster.enabled_hypervisors)
    hvparams = {name: snapshot.cluster.hvparams.get(name, {}) for name in hypervisors}
    result = ctx.rpc.call_node(
        node.uuid, calls.instance_list(hypervisors, hvparams), timeout_s=_GUESTS_S
    )
    if result.failed:
        return
    own = {
        snapshot.instances[each].name for each in snapshot.primary_instances(node.uuid)
    }
    if running := own & set(result.payload):
        raise errors.OpPrereqError(
            f"node {node.name}: it answers and runs {messages.some(running)} by now,"
            f" {waited_s:.0f} seconds after it was to be marked offline. Its instances"
            " could start elsewhere and run twice: stop them or switch the node off,"
            " then try again",
            ecodes.ECODE_STATE,
        )


def check_heartbeat(ctx: Context, node: objects.Node) -> None:
    """Check that the heartbeat of a dead node on shared storage has not gone on.

    The helper had confirmed that the node is off, and may have lied. A larger number of
    a run that was known then is a sign of life. One of an unknown run may be a copy of
    an old file, so it is looked at twice; so is a node of which none is found any more,
    since nodes that were not asked before only begin to read.

    Raises:
        OpPrereqError: it has gone on.
    """
    templates = ctx.snapshot.cluster.enabled_disk_templates
    if set(disks.DTS_SHARED_DIRS).isdisjoint(templates):
        return
    known = _largest(
        beat
        for death in ctx.config.node_deaths.state().deaths
        if death.node == node.uuid
        for beat in death.heartbeats
    )
    beats = _heartbeats(ctx, node)
    unknown = [beat for beat in beats if beat[0] not in known]
    if unknown or (known and not beats):
        ctx.pause(_LOOK_S)
        known |= _largest(unknown)
        beats += _heartbeats(ctx, node)
    if any(number > known.get(run, number) for run, number in beats):
        raise errors.OpPrereqError(
            f"node {node.name}: its heartbeat on shared storage has gone on since its"
            " helper reported that it is off, so it is alive",
            ecodes.ECODE_STATE,
        )


def _largest(beats: Iterable[Beat]) -> dict[str, int]:
    largest: dict[str, int] = {}
    for run, number in beats:
        largest[run] = max(number, largest.get(run, number))
    return largest


def _heartbeats(ctx: Context, node: objects.Node) -> list[Beat]:
    """Return the heartbeats of a node that others find; none if no one answers."""
    nodes, master = ctx.snapshot.nodes, ctx.snapshot.cluster.master_node
    others = [
        uuid
        for uuid in sorted(nodes)
        if nodes[uuid].master_candidate and not nodes[uuid].offline
    ]
    readers = [master, *(each for each in others if each not in (master, node.uuid))]
    results = ctx.rpc.call_nodes(
        readers[:_READERS], calls.node_heartbeats([node.name]), timeout_s=_ANSWER_S
    )
    return [
        (run, number)
        for result in results.values()
        if not result.failed
        for run, number in filter(None, result.payload)
    ]
