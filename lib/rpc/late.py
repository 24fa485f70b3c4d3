"""A way to nodes for a store, which must be opened before its runner can be made.

The runner carries the term, and the store gives the term when it is opened.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.rpc.base import Runner
from ganeti.rpc.result import Result


class LateRunner:
    """The ``replicate`` of a store: calls wait until there is a runner."""

    _runner: Runner

    def __init__(self) -> None:
        self._is_there = threading.Event()

    def set(self, runner: Runner) -> None:
        """Let calls go on."""
        self._runner = runner
        self._is_there.set()

    def __call__(
        self, nodes: Sequence[str], procedure: str, args: Sequence[Any]
    ) -> Mapping[str, Result]:
        """Ask nodes, see `Runner.call`."""
        self._is_there.wait()
        return self._runner.call(procedure, nodes, args)
