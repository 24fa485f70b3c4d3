"""May this node be master? Its own files, the nodes' votes, the candidates' copies.

Asking and counting votes is `ganeti.protocols.rpc.voting`, an election
`ganeti.store.copies.election`.
"""

import argparse
import collections
import enum
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Snapshot
from ganeti.protocols import ssconf
from ganeti.protocols.rpc.voting import Verdict, count
from ganeti.store.copies.election import Elector

_log = logging.getLogger(__name__)

#: Seconds between votes, and how many there are.
VOTE_PAUSE_S: Final = 10.0
VOTE_TRIES: Final = 6
#: Advice for a master whose own store cannot be used.
ANOTHER_COPY: Final = (
    "run 'gnt-cluster master-failover' on another master candidate, or 'gnt-cluster"
    " restore-store' with a backup here"
)


class Refusal(enum.Enum):
    """Why this node is not to be master."""

    #: Another node is.
    NOT_MASTER = "not master"
    #: The node does not know its own name.
    NODE_SETUP = "node set-up error"
    #: Most nodes name another one.
    LOST = "lost the vote"
    FAILED = "failed"


#: Exit codes of the master daemon.
EXIT_CODES: Final = {
    Refusal.NOT_MASTER: exitcodes.EXIT_NOTMASTER,
    Refusal.NODE_SETUP: exitcodes.EXIT_NODESETUP_ERROR,
    Refusal.LOST: exitcodes.EXIT_FAILURE,
    Refusal.FAILED: exitcodes.EXIT_FAILURE,
}


class NotMaster(Exception):
    """This node must not become master."""

    def __init__(self, why: Refusal, text: str) -> None:
        super().__init__(text)
        self.why = why


class Elected(NamedTuple):
    """A won term, and whether it was won without a majority of the candidates."""

    term: Term
    is_forced: bool


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
    """Check that the configuration names this node as master, and is of its cluster.

    Raises:
        NotMaster: it does not, or it is not.
    """
    node = snapshot.nodes.get(snapshot.cluster.master_node)
    if node is None or node.name != paths.hostname:
        recorded = snapshot.cluster.master_node if node is None else node.name
        text = f"the configuration names {recorded} as master, not {paths.hostname}"
        raise NotMaster(Refusal.FAILED, text)
    own = authority.node_uuid(paths.client_pem)
    if own not in (None, node.uuid):
        text = (
            f"{paths.store_db}: wanted {node.name} with the uuid {own} of"
            f" {paths.client_pem}, found {node.uuid}: this is the store of another"
            " cluster, or of an earlier installation of this node. Put the right file"
            f" back, or {ANOTHER_COPY}"
        )
        raise NotMaster(Refusal.FAILED, text)


def elect(
    make: Callable[[frozenset[str]], Elector],
    silent: frozenset[str],
    *,
    accept_loss: bool,
    pause: Callable[[float], None],
) -> Elected:
    """Have the candidates elect this node, which the nodes name as master.

    Args:
        make: returns an elector that does not ask some nodes.
        silent: nodes that have just not answered; they are asked if an election fails.
        accept_loss: the operator starts this node whatever the others hold.
        pause: waits some seconds.

    Returns:
        The term. It is forced if only the operator's word allowed it; with a majority
        nothing that was acknowledged can be lost.

    Raises:
        NotMaster: there is no majority, or this node's copy has lost changes.
    """
    for attempt in range(1, VOTE_TRIES + 1):
        elector = make(silent)
        try:
            survey = elector.survey()
            if survey.is_enough or accept_loss:
                term, result = elector.elect(
                    is_takeover=accept_loss, accept_loss=accept_loss
                )
                return Elected(term, not result.is_enough)
        except (errors.StorageError, errors.TermError) as err:
            raise NotMaster(Refusal.FAILED, str(err)) from err
        _log.warning("election %d of %d: %s", attempt, VOTE_TRIES, survey.shortage())
        silent = frozenset()
        if attempt < VOTE_TRIES:
            pause(VOTE_PAUSE_S)
    raise NotMaster(
        Refusal.FAILED,
        f"{survey.shortage()}. If the other candidates are known to be down, use"
        " --no-voting to accept that loss",
    )


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option whose value is the argument ``silent`` of `asking`."""
    parser.add_argument(
        "--not-answering",
        metavar="UUID[,UUID...]",
        type=lambda text: frozenset(text.split(",")),
        default=frozenset(),
        help="nodes that have just not answered: do not wait for their votes if those"
        " of the others decide",
    )


def asking(
    gather: Callable[[Collection[str]], Mapping[str, str | None]],
    nodes: Collection[str],
    name: str,
    silent: Collection[str],
) -> Callable[[], Mapping[str, str | None]]:
    """Return the argument ``ask`` of `vote`.

    Args:
        gather: returns node -> the master that it names, None without an answer.
        nodes: UUIDs of all nodes.
        name: of this node.
        silent: nodes that have just not answered. Waiting for each of them again would
            take a time limit, so they are asked only if this node does not win without.
    """
    left = set(silent) & set(nodes)

    def ask() -> Mapping[str, str | None]:
        nonlocal left
        skipped, left = left, set()
        votes = dict.fromkeys(skipped) | dict(gather(set(nodes) - skipped))
        if skipped and count(votes, name).verdict is not Verdict.WON:
            votes |= gather(skipped)
        return votes

    return ask


def vote(
    ask: Callable[[], Mapping[str, str | None]],
    name: str,
    *,
    pause: Callable[[float], None],
    refusing: Collection[str] = (),
) -> None:
    """Ask the nodes until they have decided.

    Args:
        ask: returns node -> the master that it names.
        name: of this node.
        pause: waits some seconds.
        refusing: nodes that do not accept the certificate of this node, after ``ask``.

    Raises:
        NotMaster: this node lost, or nothing was decided in time.
    """
    for attempt in range(1, VOTE_TRIES + 1):
        votes = ask()
        result = count(votes, name)
        if result.verdict is Verdict.WON:
            return
        text = (
            f"{result.own} of {result.total} nodes call {name} master, more than half"
            f" are needed; {result.missing} did not answer"
        )
        if refusing:
            text += f", {len(refusing)} of them because this node is no candidate there"
        if result.verdict is Verdict.LOST:
            others = collections.Counter(vote for vote in votes.values() if vote)
            raise NotMaster(Refusal.LOST, f"{text}; votes: {dict(others)}")
        _log.warning("vote %d of %d: %s", attempt, VOTE_TRIES, text)
        if attempt < VOTE_TRIES:
            pause(VOTE_PAUSE_S)
    advice = "If the other nodes are known to be down, use --no-voting"
    if refusing:
        advice = (
            "Another node may be the master: run gnt-cluster getmaster on the other"
            f" nodes, and gnt-node add --readd {name} on the master"
        )
    raise NotMaster(Refusal.FAILED, f"{text}. {advice}")
