"""The last look at a dead node before an act about its death, with its lock held.

The job of the act may have waited for locks for hours, in which the node was repaired,
or a person stepped in.
"""

from typing import Final

from ganeti import errors, objects
from ganeti.cmdlib.base import Context
from ganeti.constants import ecodes

#: Seconds that the node daemon has to answer.
_ANSWER_S: Final = 2.0


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
    if not cluster.node_death:
        return "deaths of nodes are not handled (gnt-cluster modify --node-death=yes)"
    if node.offline or node.drained:
        state = "marked offline" if node.offline else "drained"
        return f"it was {state} by now, so a person works on it"
    result = ctx.rpc.call("version", [node.uuid], timeout_s=_ANSWER_S)[node.uuid]
    if result.refused or not result.is_silent:
        return "its node daemon answers, so it is alive"
    return ""
