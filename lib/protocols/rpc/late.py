"""A late-bound runner for a store, which must be opened before the runner exists.

The runner sends the term, and the term is known when the store has been opened.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ganeti.protocols.rpc.base import Runner
from ganeti.protocols.rpc.result import Result


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
        self, nodes: Sequence[str], procedure: str, args: Sequence[Any]
    ) -> Mapping[str, Result]:
        """Call nodes, see `Runner.call`."""
        self._is_there.wait()
        return self._runner.call(procedure, nodes, args)

    def begin(
        self,
        nodes: Sequence[str],
        procedure: str,
        args: Sequence[Any],
        done: Callable[[str, Result], None],
    ) -> None:
        """Begin a call of nodes, see `NetworkRunner.begin`."""
        self._is_there.wait()
        self._runner.begin(procedure, nodes, args, done)
