"""Notices that nodes refuse this master's term, whichever part asked them.

A refusal is one node's answer, and proves nothing: the candidates are asked.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.rpc import Result, Runner


class WatchedRunner(Runner):
    """A runner that reports each refusal of this master's term."""

    def __init__(self, inner: Runner, on_refusal: Callable[[], None]) -> None:
        self._inner = inner
        self._on_refusal = on_refusal

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any] | Callable[[str], Sequence[Any]] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Ask many nodes, see `Runner`."""
        results = self._inner.call(procedure, nodes, args, timeout_s=timeout_s)
        if any(result.deposed for result in results.values()):
            self._on_refusal()
        return results
