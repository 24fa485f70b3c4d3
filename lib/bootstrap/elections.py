"""Elections over the network: how a node that is no master yet reaches candidates."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti import rpc
from ganeti.objects import Snapshot
from ganeti.pathutils import Paths
from ganeti.rpc import Result, table
from ganeti.store.election import Ask, Elector

#: Seconds that candidates have for questions about their copies; one that is stuck
#: counts as silent.
_CALL_S: Final = 10.0
#: Calls whose answers may be as large as the store.
_LARGE: Final = frozenset(("store_changes", "store_dump", "store_scan"))


@contextlib.contextmanager
def asking(paths: Paths) -> Iterator[Ask]:
    """Reach nodes for no term: a question must not depose the present master."""
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
    """Return what elects this node; silent nodes are not asked again."""
    return Elector(paths.store_db, node, ask, silent)
