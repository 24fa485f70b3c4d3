"""A way to nodes for a store, which must be opened before its runner can be made.

The runner carries the term, and the store gives the term when it is opened.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.rpc.base import Runner
from ganeti.rpc.result import Result


class LateRunner:
    """The ``replicate`` of a store: calls wait until there is a runner."""

    def __init__(self) -> None:
        self._runner: Runner | None = None
        self._is_there = threading.Event()

    def set(self, runner: Runner) -> None:
        """Let calls go on."""
        self._runner = runner
        self._is_there.set()

    def give_up(self) -> None:
        """Let calls fail: there will be no runner."""
        self._is_there.set()

    def __call__(
        self, nodes: Sequence[str], procedure: str, args: Sequence[Any]
    ) -> Mapping[str, Result]:
        """Ask nodes, see `Runner.call`.

        Raises:
            RpcError: there is no runner and will be none.
        """
        self._is_there.wait()
        if self._runner is None:
            raise errors.RpcError(f"{procedure}: nodes cannot be reached")
        return self._runner.call(procedure, nodes, args)
