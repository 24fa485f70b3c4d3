"""Leads nodes back that refuse this master's term although a majority follows it.

Such a node has seen the term of a master that a minority was forced to elect. The
candidates vouch for this master to the node, which decides itself; see
`ganeti.node.calls.membership.term_resets`. Master candidates get a higher term from the
watcher.
"""

import logging
import queue
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.model.objects import Snapshot
from ganeti.protocols import rpc
from ganeti.store import Store

_log = logging.getLogger(__name__)

_REVIEW: Final = "term_review"
_CONFIRM: Final = "term_confirm"
_NONCE: Final = re.compile(r"[0-9a-f]{32}")
#: Seconds until a node is led back again: the other master may still run.
PAUSE_S: Final = 10.0
#: Seconds for the node, and for the candidates, whose own calls have 10.
_CALL_S: Final = 15.0

#: (node, procedure, arguments) -> answer; a call that carries no term.
Ask = Callable[[rpc.Target, str, Sequence[Any]], rpc.Result]


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
        asked = self._ask(target, _REVIEW, [term])
        if asked.failed or not _NONCE.fullmatch(str(asked.payload)):
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
        answers = self._rpc.call(
            _CONFIRM,
            candidates,
            lambda voucher: [term, voucher, asked.payload, place],
            timeout_s=_CALL_S,
        )
        if any(not each.failed and each.payload is True for each in answers.values()):
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
