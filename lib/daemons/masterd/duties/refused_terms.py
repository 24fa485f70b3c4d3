"""Nodes that refuse this master's term: noticed, and led back.

A refusal is one node's answer, and proves nothing: the candidates are asked. Until a
majority of them has confirmed the term, no call is made that acts; questions go on. A
master that knows that it is deposed calls no nodes any more.

If a majority follows this master, the node has seen the term of a master that a
minority was forced to elect. The candidates vouch for this master to the node, which
decides itself; see `ganeti.node.calls.membership.relays`. Master candidates get a
higher term from the watcher.
"""

import contextlib
import logging
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.model.objects import Snapshot
from ganeti.protocols import rpc
from ganeti.protocols.rpc import PROCEDURES, Arguments, Result, Runner, calls
from ganeti.store import Store

_log = logging.getLogger(__name__)

_NONCE: Final = re.compile(r"[0-9a-f]{32}")
#: Seconds until a node is led back again: the other master may still run.
PAUSE_S: Final = 10.0
#: Seconds for the node, and for the candidates, whose own calls have 10.
_CALL_S: Final = 15.0

#: (node, request) -> answer; a call that carries no term.
Ask = Callable[[rpc.Target, rpc.Request[str]], rpc.Answer[str]]


class TermResets:
    """The thread that leads nodes back, one after the other."""

    def __init__(
        self, store: Store, runner: rpc.Runner, ask: Ask, clock: Clock
    ) -> None:
        """Prepare; `start` starts the thread.

        Args:
            store: the configuration; knows whether a majority follows this master.
            runner: calls candidates with this master's term.
            ask: calls a node without a term.
            clock: measures the pause.
        """
        self._store = store
        self._rpc = runner
        self._ask = ask
        self._clock = clock
        #: Node uuids; None to stop.
        self._news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._tried: dict[str, float] = {}
        self._thread = threading.Thread(
            target=self._run, name="term-resets", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon; a call under way goes on, and changes nothing here."""
        self._news.put(None)

    def note(self, nodes: Iterable[str]) -> None:
        """Take nodes that have refused this master's term; returns at once."""
        for node in nodes:
            self._news.put(node)

    def _run(self) -> None:
        while (uuid := self._news.get()) is not None:
            now = self._clock.monotonic()
            if now - self._tried.get(uuid, -PAUSE_S) < PAUSE_S:
                continue
            self._tried[uuid] = now
            try:
                self._store.require_confirmed()
                self._lead_back(self._store.snapshot(), uuid)
            except errors.TermError:
                return
            except Exception as err:  # noqa: BLE001 - the next node may be led back
                _log.warning("node %s is not led back: %s", uuid, err)

    def _lead_back(self, snapshot: Snapshot, uuid: str) -> None:
        node = snapshot.nodes.get(uuid)
        # Only ``gnt-node add --readd`` calls a node that is marked offline.
        if node is None or node.master_candidate:
            return
        term = (self._store.term.number, self._store.term.owner)
        target = rpc.Target(uuid, node.name, node.primary_ip, rpc.node_port())
        asked = self._ask(target, calls.term_review(term))
        if asked.failed or not _NONCE.fullmatch(asked.payload):
            _log.warning(
                "node %s refuses the term of this master: %s", node.name, asked.fail_msg
            )
            return
        candidates = [
            each.uuid
            for each in snapshot.nodes.values()
            if each.master_candidate and not each.offline
        ]
        place = (target.uuid, target.name, target.address)
        answers = self._rpc.call_nodes(
            candidates,
            lambda voucher: calls.term_confirm(term, voucher, asked.payload, place),
            timeout_s=_CALL_S,
        )
        if any(not each.failed and each.payload for each in answers.values()):
            _log.info("node %s admits the term of this master again", node.name)
            return
        problems = "; ".join(
            f"{each.node}: {each.fail_msg}" for each in answers.values() if each.failed
        )
        _log.warning(
            "node %s refuses the term of this master, and no majority of the master"
            " candidates that it knows has vouched for it; see 'Reset of a term' in the"
            " page about the commit rule: %s",
            node.name,
            problems or "too few of them are online",
        )


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
        args: Arguments = (),
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
