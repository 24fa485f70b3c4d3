"""The interface to nodes; implemented by the network runner and by fakes.

A store must be opened before the runner exists: the runner sends the term, which is
known when the store has been opened. `LateRunner` is what the store gets.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ganeti.base.constants import misc
from ganeti.protocols.rpc.procedure import Answer, Request, Result, T

_UUID: Final = re.compile(misc.UUID_REGEX)
#: Positional arguments of a call, or a function of the node's uuid that returns them.
Arguments = Sequence[Any] | Callable[[str], Sequence[Any]]


class Target(NamedTuple):
    """Name and address of a node daemon.

    ``certified``: name that its certificate must have; by default the UUID, or the name
    if the caller does not know a UUID.
    """

    uuid: str
    name: str
    address: str
    port: int
    offline: bool = False
    certified: str = ""

    @property
    def identity(self) -> str:
        """The name that the certificate of the node must have."""
        if self.certified:
            return self.certified
        return self.uuid if _UUID.fullmatch(self.uuid) else self.name


class Runner(Protocol):
    """A caller of the procedures of `ganeti.protocols.rpc.calls` on nodes.

    A class that inherits from it only defines ``call``.
    """

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Arguments = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes in parallel.

        Args:
            procedure: its name.
            nodes: node uuids, resolved with the newest snapshot.
            args: see `Arguments`.
            timeout_s: time limit of the whole answer; by default that of the
                procedure's class.

        Returns:
            node uuid -> result; a failure is a result, too, and is not raised.
        """

    def call_nodes(
        self,
        nodes: Sequence[str],
        request: Request[T] | Callable[[str], Request[T]],
        *,
        timeout_s: float | None = None,
    ) -> dict[str, Answer[T]]:
        """Make a request to many nodes in parallel, or one that depends on the uuid.

        Returns node uuid -> answer, see `call`.
        """
        args: Arguments
        if isinstance(request, Request):
            procedure, args = request.procedure, request.args
        elif nodes:
            # The requests differ in their arguments alone.
            procedure, args = request(nodes[0]).procedure, lambda n: request(n).args
        else:
            return {}
        results = self.call(procedure.name, nodes, args, timeout_s=timeout_s)
        return {node: procedure.read(result) for node, result in results.items()}

    def call_node(
        self, node: str, request: Request[T], *, timeout_s: float | None = None
    ) -> Answer[T]:
        """Make a request to one node."""
        return self.call_nodes([node], request, timeout_s=timeout_s)[node]


class _Beginner(Runner, Protocol):
    """A runner that can begin a call without waiting for it."""

    def begin(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any],
        done: Callable[[str, Result], None],
    ) -> None:
        """Begin a call; ``done`` is called with each node and its result."""


class LateRunner:
    """The ``replicate`` function of a store: calls wait until a runner is set."""

    _runner: _Beginner

    def __init__(self) -> None:
        self._is_there = threading.Event()

    def set(self, runner: _Beginner) -> None:
        """Set the runner, which lets calls continue."""
        self._runner = runner
        self._is_there.set()

    def __call__(
        self, nodes: Sequence[str], request: Request[T]
    ) -> Mapping[str, Answer[T]]:
        """Call nodes, see `Runner.call_nodes`."""
        self._is_there.wait()
        return self._runner.call_nodes(nodes, request)

    def begin(
        self,
        nodes: Sequence[str],
        request: Request[Any],
        done: Callable[[str, Result], None],
    ) -> None:
        """Begin a call of nodes, see `NetworkRunner.begin`."""
        self._is_there.wait()
        self._runner.begin(request.procedure.name, nodes, request.args, done)
