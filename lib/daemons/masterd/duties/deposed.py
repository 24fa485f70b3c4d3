"""Notices that nodes refuse this master's term, whichever part asked them.

A refusal is one node's answer, and proves nothing: the candidates are asked. Until a
majority of them has confirmed the term, no call is made that acts; questions go on. A
master that knows that it is deposed calls no nodes any more.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ganeti.protocols.rpc import Result, Runner
from ganeti.protocols.rpc.table import PROCEDURES


class Waits:
    """The waits of threads for a majority of the candidates, and their early end."""

    def __init__(self) -> None:
        self._given_up: dict[threading.Thread, threading.Event] = {}

    @contextlib.contextmanager
    def begin(self) -> Iterator[threading.Event]:
        """Yield an event that is set when the wait of this thread is to end."""
        me = threading.current_thread()
        self._given_up[me] = threading.Event()
        try:
            yield self._given_up[me]
        finally:
            del self._given_up[me]

    def end(self, thread: threading.Thread) -> None:
        """End the wait of a thread, if it waits; for other threads."""
        if (given_up := self._given_up.get(thread)) is not None:
            given_up.set()


class WatchedRunner(Runner):
    """A runner that reports each refusal of this master's term."""

    def __init__(
        self,
        inner: Runner,
        on_refusal: Callable[[Sequence[str]], None],
        require_leading: Callable[[], None] = lambda: None,
        require_confirmed: Callable[[str, threading.Event], None] = lambda *_: None,
        waits: Waits | None = None,
        *,
        measure: Callable[[str, float, int], None] = lambda *_: None,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Watch a runner.

        Args:
            inner: calls the nodes.
            on_refusal: called with the nodes that have refused this master's term.
            require_leading: raises TermError if this master is deposed.
            require_confirmed: the same before calls that act; it gets the procedure,
                and blocks until the candidates have confirmed the term after a
                refusal, or until its second argument is set.
            waits: gets the threads that wait for the candidates.
            measure: gets the procedure, the seconds and the number of failed answers
                of each call.
            monotonic: returns seconds.
        """
        self._inner = inner
        self._require_confirmed = require_confirmed
        self._require_leading = require_leading
        self._on_refusal = on_refusal
        self._waits = waits or Waits()
        self._measure = measure
        self._monotonic = monotonic

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
            StorageError: the wait for the candidates was ended; no node was called.
        """
        if PROCEDURES[procedure].reads:
            self._require_leading()
        else:
            with self._waits.begin() as give_up:
                self._require_confirmed(procedure, give_up)
        began = self._monotonic()
        results = self._inner.call(procedure, nodes, args, timeout_s=timeout_s)
        failed = sum(result.failed for result in results.values())
        self._measure(procedure, self._monotonic() - began, failed)
        if refused := [node for node, result in results.items() if result.deposed]:
            self._on_refusal(refused)
        return results
