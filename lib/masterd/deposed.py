"""Notices that nodes refuse this master's term, whichever part asked them.

A refusal is one node's answer, and proves nothing: the candidates are asked. Until a
majority of them has confirmed the term, no call is made that acts; questions go on. A
master that knows that it is deposed calls no nodes any more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.rpc import Result, Runner
from ganeti.rpc.table import PROCEDURES


class WatchedRunner(Runner):
    """A runner that reports each refusal of this master's term."""

    def __init__(
        self,
        inner: Runner,
        on_refusal: Callable[[Sequence[str]], None],
        require_leading: Callable[[], None] = lambda: None,
        require_confirmed: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch a runner.

        Args:
            inner: calls the nodes.
            on_refusal: called with the nodes that have refused this master's term.
            require_leading: raises TermError if this master is deposed.
            require_confirmed: the same before calls that act; it blocks until the
                candidates have confirmed the term after a refusal.
        """
        self._inner = inner
        self._require_confirmed = require_confirmed
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
        if PROCEDURES[procedure].reads:
            self._require_leading()
        else:
            self._require_confirmed()
        results = self._inner.call(procedure, nodes, args, timeout_s=timeout_s)
        if refused := [node for node, result in results.items() if result.deposed]:
            self._on_refusal(refused)
        return results
