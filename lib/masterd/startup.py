"""May this node be master? What it believes itself, and what the nodes vote.

The count is a pure function; asking is the caller's.
"""

import collections
import dataclasses
import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ganeti import errors, rpc, ssconf
from ganeti.objects import Snapshot
from ganeti.pathutils import Paths
from ganeti.utils import netutils

_log = logging.getLogger(__name__)

#: Seconds between votes, and how many there are.
VOTE_PAUSE_S: Final = 10.0
VOTE_TRIES: Final = 6


class Refusal(enum.Enum):
    """Why this node is not to be master."""

    #: Another node is.
    NOT_MASTER = "not master"
    #: The node cannot even tell who it is.
    NODE_SETUP = "node set-up error"
    FAILED = "failed"


class NotMaster(Exception):
    """This node must not become master."""

    def __init__(self, why: Refusal, text: str) -> None:
        super().__init__(text)
        self.why = why


class Verdict(enum.Enum):
    """Outcome of a vote."""

    WON = "won"
    UNDECIDED = "undecided"
    LOST = "lost"


def check_own_files(paths: Paths) -> None:
    """Check that the node's own files call it master and that its name resolves.

    Raises:
        NotMaster: they do not.
    """
    try:
        netutils.lookup(paths.hostname, paths)
    except errors.ResolverError as err:
        text = f"the own name {paths.hostname} does not resolve: {err.args[-1]}"
        raise NotMaster(Refusal.NODE_SETUP, text) from err
    try:
        master = ssconf.SimpleStore(paths).master_node()
    except errors.ConfigurationError as err:
        text = f"this node does not know the master: {err}"
        raise NotMaster(Refusal.NODE_SETUP, text) from err
    if master != paths.hostname:
        text = f"the master is {master}, this node is {paths.hostname}"
        raise NotMaster(Refusal.NOT_MASTER, text)


def check_configuration(snapshot: Snapshot, paths: Paths) -> None:
    """Check that the configuration names this node as master.

    Raises:
        NotMaster: it does not.
    """
    node = snapshot.nodes.get(snapshot.cluster.master_node)
    if node is None or node.name != paths.hostname:
        found = snapshot.cluster.master_node if node is None else node.name
        text = f"the configuration names {found} as master, not {paths.hostname}"
        raise NotMaster(Refusal.FAILED, text)


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


def gather(runner: rpc.Runner, nodes: Iterable[str]) -> dict[str, str | None]:
    """Ask nodes whom they believe master; offline ones count as missing."""
    wanted = list(nodes)
    answers = runner.call("master_node_name", wanted)
    return {
        node: None if answers[node].failed else str(answers[node].payload)
        for node in wanted
    }


#: Seconds that nodes have to say what they know of earlier masters.
_TERM_TIMEOUT_S: Final = 5.0


@dataclasses.dataclass(frozen=True)
class Terms:
    """Highest terms among nodes.

    Attributes:
        seen: that any node knows; a master that ended before it changed anything has
            left its term with the nodes alone.
        stored: of a copy of the configuration; 0 if there is none.
        holder: node with that copy.
    """

    seen: int = 0
    stored: int = 0
    holder: str = ""


def gather_terms(runner: rpc.Runner, nodes: Iterable[str]) -> Terms:
    """Ask nodes which master terms they know; silent ones do not count."""
    answers = runner.call("store_status", list(nodes), timeout_s=_TERM_TIMEOUT_S)
    found = Terms()
    for answer in answers.values():
        if answer.failed or not isinstance(answer.payload, Mapping):
            continue
        stored = int(answer.payload.get("term", 0))
        seen = max(stored, int(answer.payload.get("seen", 0)), found.seen)
        found = dataclasses.replace(found, seen=seen)
        if stored > found.stored:
            found = dataclasses.replace(found, stored=stored, holder=answer.node)
    return found


def check_terms(found: Terms, own: int) -> None:
    """Check that no copy was written by a later master than this node's.

    A copy of the same term that is a little newer is no reason: it has what was never
    acknowledged.

    Raises:
        NotMaster: this node's configuration is outdated.
    """
    if found.stored > own:
        text = (
            f"node {found.holder} has a configuration of master term {found.stored},"
            f" this node one of term {own}: it is outdated. Use --no-voting to start"
            " with it nevertheless"
        )
        raise NotMaster(Refusal.FAILED, text)


def vote(
    ask: Callable[[], Mapping[str, str | None]],
    name: str,
    *,
    pause: Callable[[float], None],
) -> None:
    """Ask the nodes until they have decided.

    Args:
        ask: returns node -> whom it believes master.
        name: of this node.
        pause: waits some seconds.

    Raises:
        NotMaster: this node lost, or nothing was decided in time.
    """
    for attempt in range(1, VOTE_TRIES + 1):
        votes = ask()
        found = count(votes, name)
        if found.verdict is Verdict.WON:
            return
        text = (
            f"{found.own} of {found.total} nodes call {name} master, more than half"
            f" are needed; {found.missing} did not answer"
        )
        if found.verdict is Verdict.LOST:
            others = collections.Counter(vote for vote in votes.values() if vote)
            raise NotMaster(Refusal.FAILED, f"{text}; votes: {dict(others)}")
        _log.warning("vote %d of %d: %s", attempt, VOTE_TRIES, text)
        if attempt < VOTE_TRIES:
            pause(VOTE_PAUSE_S)
    raise NotMaster(
        Refusal.FAILED,
        f"{text}. If the other nodes are known to be down, use --no-voting",
    )
