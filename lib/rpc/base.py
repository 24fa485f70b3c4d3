"""The interface to nodes; implemented by the network runner and by fakes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ganeti.rpc.result import Result


class Target(NamedTuple):
    """Where a node daemon is."""

    uuid: str
    name: str
    address: str
    port: int
    offline: bool = False


class Runner(Protocol):
    """Calls procedures of `ganeti.rpc.table` on nodes."""

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any] | Callable[[str], Sequence[Any]] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Ask many nodes in parallel.

        Args:
            procedure: name in the table.
            nodes: node uuids, resolved with the newest snapshot.
            args: positional arguments, or a function of the node's uuid.
            timeout_s: for the whole answer; by default the procedure's class.

        Returns:
            node uuid -> answer; failures are answers, nothing is raised for them.
        """

    def call_one(
        self,
        procedure: str,
        node: str,
        *args: Any,
        timeout_s: float | None = None,
    ) -> Result:
        """Ask one node."""
