"""Asking nodes whom they believe master, and which masters they have known.

Counting is pure; what follows from a count is the caller's business.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ganeti.rpc.base import Runner


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
        votes: node -> the master it believes in, None if it did not answer.
        name: of this node.
    """
    own = sum(1 for vote in votes.values() if vote == name)
    missing = sum(1 for vote in votes.values() if vote is None)
    return Count(own, missing, len(votes))


#: Seconds that nodes have to answer; one that is stuck counts as silent.
_TIMEOUT_S: Final = 10.0


def gather(runner: Runner, nodes: Iterable[str]) -> dict[str, str | None]:
    """Ask nodes whom they believe master; offline ones count as missing."""
    wanted = list(nodes)
    answers = runner.call("master_node_name", wanted, timeout_s=_TIMEOUT_S)
    return {
        node: None if answers[node].failed else str(answers[node].payload)
        for node in wanted
    }


#: Seconds that nodes have to say what they know of earlier masters.
_TERM_TIMEOUT_S: Final = 5.0


class Copy(NamedTuple):
    """One node's copy of the configuration: where its history ends.

    Copies with equal digests are the same, whatever their terms.
    """

    term: int
    revision: int
    digest: str = ""

    def is_newer(self, other: "Copy") -> bool:
        """Tell whether it has what another copy lacks."""
        if self.digest and self.digest == other.digest:
            return False
        if not other.digest and self.revision == other.revision:
            return False
        return self[:2] > other[:2]


@dataclasses.dataclass(frozen=True)
class Terms:
    """What nodes know of masters.

    Attributes:
        seen: highest term that any node knows; a master that ended before it changed
            anything has left its term with the nodes alone.
        copies: copy by node uuid, of the nodes that have one and answered.
    """

    seen: int
    copies: Mapping[str, Copy]

    def newer_than(self, own: Copy) -> tuple[str, Copy] | None:
        """Return node uuid and copy of the newest one, if it is newer than ours."""
        if not self.copies:
            return None
        uuid = max(self.copies, key=lambda node: self.copies[node][:2])
        found = self.copies[uuid]
        return (uuid, found) if found.is_newer(own) else None


def gather_terms(runner: Runner, nodes: Iterable[str]) -> Terms:
    """Ask nodes which masters they have known; silent ones do not count."""
    answers = runner.call("store_status", list(nodes), timeout_s=_TERM_TIMEOUT_S)
    seen, copies = 0, {}
    for uuid, answer in answers.items():
        if answer.failed or not isinstance(answer.payload, Mapping):
            continue
        values = answer.payload
        copy = Copy(
            int(values.get("term", 0)),
            int(values.get("revision", 0)),
            str(values.get("digest", "")),
        )
        seen = max(seen, copy.term, int(values.get("seen", 0)))
        if copy.revision:
            copies[uuid] = copy
    return Terms(seen, copies)
