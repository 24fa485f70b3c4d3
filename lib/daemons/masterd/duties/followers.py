"""How far the files of master candidates follow the store.

With files the store knows: it sends the changes. A store in etcd is followed by a
daemon of each candidate, so the candidates are asked.
"""

from collections.abc import Mapping
from typing import Final

from ganeti.model.objects import Snapshot
from ganeti.protocols import rpc
from ganeti.store import CopyState

#: Seconds for the answers; a query waits for them.
_CALL_S: Final = 3.0


def ask(runner: rpc.Runner, snapshot: Snapshot) -> Mapping[str, CopyState]:
    """Return the state of the other candidates' files by node uuid.

    Args:
        runner: calls the nodes.
        snapshot: the configuration, whose revision is the newest.
    """
    others = [
        node.uuid
        for node in snapshot.nodes.values()
        if node.master_candidate
        and not node.offline
        and node.uuid != snapshot.cluster.master_node
    ]
    if not others:
        return {}
    answers = runner.call("store_status", others, (), timeout_s=_CALL_S)
    return {uuid: _state(answer, snapshot) for uuid, answer in answers.items()}


def _state(answer: rpc.Result, snapshot: Snapshot) -> CopyState:
    revision = answer.payload.get("revision") if not answer.failed else None
    if not isinstance(revision, int):
        return CopyState(False, -1, answer.fail_msg or "the answer has no revision")
    if revision >= snapshot.revision:
        return CopyState(True, revision)
    return CopyState(False, revision, "ganeti-standby of the node has not written more")
