"""Notices that nodes refuse this master's term, whichever part asked them.

A refusal is one node's answer, and proves nothing: the candidates are asked. A master
that knows that it is deposed calls no nodes any more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.rpc import Result, Runner


class WatchedRunner(Runner):
    """A runner that reports each refusal of this master's term."""

    def __init__(
        self,
        inner: Runner,
        on_refusal: Callable[[], None],
        require_leading: Callable[[], None] = lambda: None,
    ) -> None:
        self._inner = inner
        self._require_leading = require_leading
        self._on_refusal = on_refusal

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any] | Callable[[str], Sequence[Any]] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Ask many nodes, see `Runner`.

        Raises:
            TermError: this master is deposed; no node was called.
        """
        self._require_leading()
        results = self._inner.call(procedure, nodes, args, timeout_s=timeout_s)
        if any(result.deposed for result in results.values()):
            self._on_refusal()
        return results
