"""Notes the copies of candidates that follow a master which a minority elected."""

import logging
from typing import Final

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.store import Engine
from ganeti.store.copies import known_branches
from ganeti.store.copies import network_elections as elections

_log: Final = logging.getLogger(__name__)


def note(opened: Engine, paths: Paths, node: str) -> bool:
    """Note the copy of a candidate that refuses this master, if it is a newer one.

    Does not wait for the note to be written; failures are logged. See
    `ganeti.store.copies.known_branches`.

    Args:
        opened: the store; a majority follows its term.
        paths: of this node.
        node: uuid of the candidate.

    Returns:
        whether the copy is not newer, or was noted by an earlier call: it stops no
        start of the master daemon then.
    """
    snapshot = opened.snapshot()
    if node not in snapshot.nodes:
        return False
    name = snapshot.nodes[node].name
    try:
        # A call with this master's term would be refused.
        with elections.asking(paths) as ask:
            answer = ask(snapshot, [node], "store_status", ())[node]
        if answer.fail_msg is not None:
            raise errors.StorageError(answer.fail_msg)
        digest = known_branches.newer(
            answer.payload, snapshot.cluster.uuid, opened.term.number
        )
        if not digest or known_branches.is_known(opened.read, node, digest):
            return True
        opened.commit_soon([known_branches.document(node, digest)])
        _log.warning(
            "the copy of the configuration on %s is of a master that a minority"
            " elected; it will not count",
            name,
        )
    except errors.GenericError as err:
        _log.info("the copy of %s was not noted: %s", name, err)
    return False
