"""Elections over the network: RPC calls of a node that is not the master yet."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base.pathutils import Paths
from ganeti.model.objects import Snapshot
from ganeti.protocols import rpc
from ganeti.protocols.rpc import Result, table
from ganeti.store.copies.election import Ask, Elector

#: Seconds to wait for a candidate's answer about its copy; later it counts as silent.
_CALL_S: Final = 10.0
#: Calls whose answers may be as large as the store.
_LARGE: Final = frozenset(("store_changes", "store_dump", "store_scan"))


@contextlib.contextmanager
def asking(paths: Paths) -> Iterator[Ask]:
    """Yield a function that calls nodes without a term.

    A call with a new term would depose the present master, which a question must not.
    """
    contacts = [Snapshot()]
    runner = rpc.NetworkRunner(lambda: contacts[0], paths, None)

    def ask(
        snapshot: Snapshot, nodes: Sequence[str], procedure: str, args: Sequence[Any]
    ) -> Mapping[str, Result]:
        contacts[0] = snapshot
        limit = table.TIMEOUTS["fast"] if procedure in _LARGE else _CALL_S
        return runner.call(procedure, nodes, args, timeout_s=limit)

    try:
        yield ask
    finally:
        runner.close()


def elector(paths: Paths, node: str, ask: Ask, silent: frozenset[str]) -> Elector:
    """Return an elector of this node that does not call silent nodes again.

    Args:
        paths: of this node.
        node: UUID of this node.
        ask: see `asking`.
        silent: UUIDs of nodes that did not answer before.
    """
    return Elector(paths.store_db, node, ask, silent)
