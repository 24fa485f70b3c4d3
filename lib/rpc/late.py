"""A late-bound runner for a store, which must be opened before the runner exists.

The runner sends the term, and the term is known when the store has been opened.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.rpc.base import Runner
from ganeti.rpc.result import Result


class LateRunner:
    """The ``replicate`` function of a store: calls wait until a runner is set."""

    _runner: Runner

    def __init__(self) -> None:
        self._is_there = threading.Event()

    def set(self, runner: Runner) -> None:
        """Set the runner, which lets calls continue."""
        self._runner = runner
        self._is_there.set()

    def __call__(
        self, nodes: Sequence[str], procedure: str, args: Sequence[Any]
    ) -> Mapping[str, Result]:
        """Call nodes, see `Runner.call`."""
        self._is_there.wait()
        return self._runner.call(procedure, nodes, args)
