"""Doubts about this master's term, and how a majority of the candidates ends them.

A node that refuses the term of this master has seen another master. That may be one
which a minority was forced to elect, or the one that deposed this master: the
candidates know. Until a majority of them has confirmed this master's term *after* the
refusal, the master calls no node to act: other nodes may not know the new master yet,
and would carry out what this one undoes.
"""

import enum
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.decisions.quorum import Term, Voters, term_of
from ganeti.decisions.quorum import refusal as refusal_of
from ganeti.model.objects import Snapshot
from ganeti.protocols.rpc import calls
from ganeti.store.copies.peers import ACK_TIMEOUT_S, RECHECK_S, WARN_EVERY_S
from ganeti.store.copies.sending import Replicate, is_term_refusal

_log = logging.getLogger(__name__)


class Leader(Protocol):
    """The store that this master writes, as far as it is asked here."""

    @property
    def term(self) -> Term:
        """The term of this master."""

    @property
    def voters(self) -> Voters:
        """The candidate set in force."""

    def is_over(self) -> bool:
        """Return whether this node's own copy has promised another term."""

    def snapshot(self) -> Snapshot:
        """Return the newest durable snapshot."""

    @property
    def is_ending(self) -> bool:
        """Whether the store is being closed, or this master is known to be deposed."""

    def depose(self, error: errors.TermError) -> None:
        """Refuse all changes from now on."""


class _Outcome(enum.Enum):
    CONFIRMED = enum.auto()
    DEPOSED = enum.auto()
    UNKNOWN = enum.auto()


class _Answers(NamedTuple):
    """Of one round: who still promises this term, who refuses it, who is silent."""

    promised: frozenset[str]
    refused: Mapping[str, str]
    is_complete: bool


class _Round:
    """One question to all other candidates; answers come from threads."""

    def __init__(
        self, replicate: Replicate, leader: Leader, nodes: frozenset[str]
    ) -> None:
        self._replicate = replicate
        self._term = leader.term
        self._cluster = leader.snapshot().cluster.uuid
        self._lock = threading.Lock()
        self._left = len(nodes)
        self._promised: set[str] = set()
        self._refused: dict[str, str] = {}
        self.news = threading.Event()
        for node in sorted(nodes):
            threading.Thread(
                target=self._ask, args=(node,), name="store-confirm", daemon=True
            ).start()

    def _ask(self, node: str) -> None:
        refusal: str | None = None
        has_promised = False
        try:
            answer = self._replicate((node,), calls.store_status()).get(node)
            if answer is None:
                return
            if answer.fail_msg is None:
                has_promised, refusal = self._read(answer.payload)
            elif is_term_refusal(answer.fail_msg):
                refusal = answer.fail_msg
        except errors.GenericError as err:
            _log.info("a candidate did not confirm this master's term: %s", err)
        finally:
            with self._lock:
                self._left -= 1
                if has_promised:
                    self._promised.add(node)
                elif refusal:
                    self._refused[node] = refusal
                self.news.set()

    def _read(self, payload: Any) -> tuple[bool, str | None]:
        """Return whether a copy still promises this term, and why not if it does not.

        An empty copy, or one of another cluster, says neither: it may have lost a
        promise.
        """
        if not isinstance(payload, Mapping) or payload.get("cluster") != self._cluster:
            return False, None
        try:
            promised = term_of([payload["term"], payload.get("owner", "")])
        except (KeyError, ValueError):
            return False, None
        has_copy = payload.get("revision") != 0
        return has_copy and promised == self._term, refusal_of(promised, self._term)

    def answers(self) -> _Answers:
        """Return the answers so far."""
        with self._lock:
            self.news.clear()
            return _Answers(
                frozenset(self._promised), dict(self._refused), not self._left
            )


class Doubts:
    """Counts nodes' refusals; has candidates confirm the term; thread-safe."""

    def __init__(
        self, replicate: Replicate, clock: Clock, is_lenient: Callable[[], bool]
    ) -> None:
        """Prepare.

        Args:
            replicate: calls candidates with this master's term.
            clock: limits rounds and paces them.
            is_lenient: returns whether this master may go on without a majority.
        """
        self._replicate = replicate
        self._clock = clock
        self._is_lenient = is_lenient
        self._lock = threading.Lock()
        #: Refusals that were noted, and up to which one the term was confirmed since.
        self._noted = 0
        self._confirmed = 0
        self._turn = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether a node has refused the term since it was confirmed."""
        return self._noted > self._confirmed

    def note(self) -> None:
        """Take notice of a node's refusal; returns at once."""
        with self._lock:
            self._noted += 1

    def settle(self, leader: Leader, give_up: threading.Event | None = None) -> None:
        """Block until a majority has confirmed the term, if a node has refused it.

        A majority that follows another master deposes the leader.

        Args:
            leader: the master whose term was refused.
            give_up: set by others to end the wait; a round of questions under way ends
                first.

        Raises:
            StorageError: the store was closed, or the wait given up, before that.
        """
        warned: float | None = None
        given_up = give_up or threading.Event()
        while self.is_open and not leader.is_ending and not given_up.is_set():
            # One thread asks; those that waited for it find that the term is confirmed.
            with self._turn:
                if not self.is_open:
                    return
                # Before the question, which does not settle refusals that are noted
                # during it: a candidate may have answered before them.
                noted = self._noted
                outcome, why = self._ask(leader)
                if outcome is _Outcome.CONFIRMED:
                    with self._lock:
                        self._confirmed = max(self._confirmed, noted)
                    return
            if outcome is _Outcome.DEPOSED:
                leader.depose(errors.TermError(why))
                return
            now = self._clock.monotonic()
            if warned is None or now - warned >= WARN_EVERY_S:
                warned = now
                _log.warning("calls that act on nodes wait: %s", why)
            self._clock.wait(given_up, RECHECK_S)
        if self.is_open:
            before = "the end of the master daemon" if leader.is_ending else "the kill"
            raise errors.StorageError(
                f"term {leader.term} was refused by a node and not confirmed by a"
                f" majority of the master candidates before {before}; nothing was"
                " called"
            )

    def _ask(self, leader: Leader) -> tuple[_Outcome, str]:
        """Ask all candidates once; return the outcome and the reason."""
        term, voters = leader.term, leader.voters
        own = term.owner or leader.snapshot().cluster.master_node
        asked = _Round(self._replicate, leader, voters.everyone - {own})
        end = self._clock.monotonic() + ACK_TIMEOUT_S
        while True:
            answers = asked.answers()
            # Later than the question: this node's own copy is one of those that count.
            if leader.is_over():
                return _Outcome.DEPOSED, f"term {term} is over"
            having = answers.promised | {own}
            if voters.has_majority(having):
                return _Outcome.CONFIRMED, ""
            if voters.is_deposed(answers.refused):
                return _Outcome.DEPOSED, min(answers.refused.values())
            left_s = end - self._clock.monotonic()
            if answers.is_complete or left_s <= 0 or leader.is_ending:
                break
            self._clock.wait(asked.news, left_s)
        if self._is_lenient() or voters.may_go_on_with(having):
            return _Outcome.CONFIRMED, ""
        return _Outcome.UNKNOWN, (
            f"a node refused term {term}, and no majority of the"
            f" {len(voters.everyone)} master candidates confirms it"
        )
