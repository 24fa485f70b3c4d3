"""Access to nodes that do not know the certificate of this master.

Such a node was away while this one became a candidate. It gets the list of permitted
callers through another node that it still accepts; see
`ganeti.node.calls.trust.callers`.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ganeti.decisions.quorum import Term
from ganeti.model.objects import Node, Snapshot
from ganeti.protocols import rpc

_log = logging.getLogger(__name__)

_RELAY: Final = "callers_relay"
#: Seconds until a relaying node must have answered; its own call has 10.
_RELAY_S: Final = 15.0
#: Most nodes that are asked to relay at the same time.
_MOST: Final = 10


def restore_access(
    runner: rpc.Runner, snapshot: Snapshot, term: Term, refused: Sequence[str]
) -> None:
    """Have other nodes send the list of permitted callers to nodes that refuse us.

    Failures are logged; the distributor tries again while a node refuses it.

    Args:
        runner: calls the nodes.
        snapshot: has the list.
        term: of this master.
        refused: UUIDs of the nodes that refuse the certificate of this master.
    """
    callers = dict(snapshot.cluster.candidate_certs)
    for uuid in refused:
        target = snapshot.nodes[uuid]
        arguments = [
            (term.number, term.owner),
            (target.uuid, target.name, target.primary_ip),
            callers,
        ]
        problems = []
        for relays in _relays(snapshot, {*refused, term.owner}):
            answers = runner.call(
                _RELAY,
                [node.uuid for node in relays],
                arguments,
                timeout_s=_RELAY_S,
            )
            done = [each.node for each in answers.values() if not each.failed]
            problems += [
                f"{each.node}: {each.fail_msg}"
                for each in answers.values()
                if each.failed
            ]
            if done:
                _log.info(
                    "node %s has the permitted callers from %s", target.name, done[0]
                )
                break
        else:
            _log.warning(
                "node %s refuses the certificate of this master, and no other node"
                " could change that; run gnt-node add --readd for it: %s",
                target.name,
                "; ".join(problems) or "no other node is online",
            )


def _relays(snapshot: Snapshot, without: set[str]) -> list[list[Node]]:
    """Return the nodes that can be asked, in groups, the most promising one first.

    A node that was a candidate may still be one for a node that was away.
    """
    others = sorted(
        (n for u, n in snapshot.nodes.items() if not n.offline and u not in without),
        key=lambda node: node.name,
    )
    candidates = [node for node in others if node.master_candidate]
    rest = [node for node in others if not node.master_candidate]
    return [group[:_MOST] for group in (candidates, rest) if group]
