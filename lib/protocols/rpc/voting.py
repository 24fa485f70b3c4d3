"""Asking nodes which node is their master.

Counting is pure; what follows from a count is the caller's business.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Final

from ganeti.protocols.rpc import calls
from ganeti.protocols.rpc.base import Runner


class Verdict(enum.Enum):
    """Outcome of a vote."""

    WON = "won"
    UNDECIDED = "undecided"
    LOST = "lost"


@dataclasses.dataclass(frozen=True)
class Count:
    """Votes: for this node, missing ones, and all there could be.

    >>> Count(2, 1, 3).verdict
    <Verdict.WON: 'won'>
    """

    own: int
    missing: int
    total: int

    @property
    def verdict(self) -> Verdict:
        """Return the outcome: more than half of all nodes decide."""
        if self.own * 2 > self.total:
            return Verdict.WON
        if (self.own + self.missing) * 2 > self.total:
            return Verdict.UNDECIDED
        return Verdict.LOST


def count(votes: Mapping[str, str | None], name: str) -> Count:
    """Count votes.

    Args:
        votes: node -> the master that it names, None if it did not answer.
        name: of this node.
    """
    own = sum(1 for vote in votes.values() if vote == name)
    missing = sum(1 for vote in votes.values() if vote is None)
    return Count(own, missing, len(votes))


#: Seconds that nodes have to answer; one that is stuck counts as silent.
_TIMEOUT_S: Final = 10.0
#: Nodes that even a busy machine asks in that time; of more, those that did not answer
#: are asked again.
_AT_ONCE: Final = 64


def gather(
    runner: Runner, nodes: Iterable[str], refusing: set[str] | None = None
) -> dict[str, str | None]:
    """Ask nodes which node is their master; offline ones count as missing.

    On a busy machine the answers of very many nodes take longer than the limit of each:
    silent ones are asked again while others answer, until more than half have.

    Args:
        runner: makes the calls.
        nodes: UUIDs of the nodes.
        refusing: gets those of the nodes that do not accept the certificate of this
            node; the others of them are taken out.
    """
    asked = list(nodes)
    votes: dict[str, str | None] = dict.fromkeys(asked)
    if refusing is not None:
        refusing.difference_update(asked)
    while True:
        answers = runner.call_nodes(
            asked, calls.master_node_name(), timeout_s=_TIMEOUT_S
        )
        heard = {
            node: answers[node].payload for node in asked if not answers[node].failed
        }
        votes |= heard
        refused = {node for node in asked if answers[node].refused}
        if refusing is not None:
            refusing |= refused
        late = [
            node
            for node in asked
            if not (node in heard or node in refused or answers[node].offline)
        ]
        known = sum(vote is not None for vote in votes.values())
        # Only as long as the late ones can make the known votes more than half.
        is_open = known * 2 <= len(votes) < (known + len(late)) * 2
        if not (is_open and heard and len(asked) > _AT_ONCE):
            return votes
        asked = late
