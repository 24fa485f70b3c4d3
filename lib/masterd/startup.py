"""May this node be master? What it believes itself, and what the nodes vote.

Asking and counting is `ganeti.rpc.voting`.
"""

import collections
import enum
import logging
from collections.abc import Callable, Mapping
from typing import Final

from ganeti import errors, ssconf
from ganeti.objects import Snapshot
from ganeti.pathutils import Paths
from ganeti.rpc.voting import Copy, Terms, Verdict, count
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


def check_copies(found: Terms, snapshot: Snapshot) -> None:
    """Check that no copy was written by a later master than this node's.

    A copy of the same term that is a little newer is no reason: it has what was never
    acknowledged.

    Raises:
        NotMaster: this node's configuration is outdated.
    """
    own = found.copies.get(
        snapshot.cluster.master_node, Copy(snapshot.term, snapshot.revision)
    )
    newer = found.newer_than(own)
    if newer is not None and newer[1].term > own.term:
        node = snapshot.nodes.get(newer[0])
        text = (
            f"node {node.name if node else newer[0]} has a configuration of master"
            f" term {newer[1].term}, this node one of term {own.term}: it is outdated."
            " Use --no-voting to start with it nevertheless"
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
