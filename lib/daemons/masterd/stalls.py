"""A bounded wait of clients for a commit that no majority confirms.

A change that was sent to the candidates, and that too few of them have acknowledged,
may or may not become durable: the master cannot answer yes or no, and waits. Its client
gets an answer nevertheless, "outcome unknown", when the wait has lasted for `LIMIT_S`.
The change goes on waiting, and becomes durable when a majority has it.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.protocols.luxi.server import Call

#: Seconds from the beginning of a stall until clients get an answer. Together with
#: `ganeti.store.copies.peers.ACK_TIMEOUT_S`, 35 seconds after the change was sent: long
#: enough for a restart of a node daemon, and much shorter than the patience of clients
#: (`ganeti.base.constants.misc.LUXI_DEF_RWTO`), who would not learn the reason.
LIMIT_S: Final = 30.0
#: Seconds between two looks at the store while calls wait.
TICK_S: Final = 1.0


class Stalls:
    """The calls whose answers may need a commit.

    `add` and the timer run in the event loop's thread, `remove` in any thread.
    """

    def __init__(
        self,
        stall: Callable[[], str],
        clock: Clock,
        call_later: Callable[[float, Callable[[], None]], Any],
    ) -> None:
        """Prepare.

        Args:
            stall: returns why a commit waits without limit, empty if none does.
            clock: measures the stall.
            call_later: runs a function in the event loop's thread after some seconds.
        """
        self._stall = stall
        self._clock = clock
        self._call_later = call_later
        self._lock = threading.Lock()
        #: Calls and what they wait for, as the subject of a sentence.
        self._waiting: dict[Call, str] = {}
        self._since: float | None = None
        self._is_ticking = False

    def add(self, call: Call, subject: str) -> None:
        """Take a call that must be answered in time."""
        with self._lock:
            self._waiting[call] = subject
        if not self._is_ticking:
            self._is_ticking = True
            self._call_later(TICK_S, self._tick)

    def remove(self, call: Call) -> bool:
        """Forget a call; return whether it must still be answered."""
        with self._lock:
            return self._waiting.pop(call, None) is not None

    def _tick(self) -> None:
        reason, now = self._stall(), self._clock.monotonic()
        if not reason:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= LIMIT_S:
            self._end_all(reason)
        # Also without calls: the beginning of the next stall must not be missed.
        self._is_ticking = bool(self._waiting or reason)
        if self._is_ticking:
            self._call_later(TICK_S, self._tick)

    def _end_all(self, reason: str) -> None:
        with self._lock:
            ended, self._waiting = self._waiting, {}
        for call, subject in ended.items():
            on_close, call.on_close = call.on_close, None
            call.fail(errors.StorageError(_text(reason, subject)))
            if on_close is not None:
                on_close()


def _text(reason: str, subject: str) -> str:
    return (
        f"outcome unknown: {reason}.\n"
        f"{subject} goes on by itself as soon as changes are accepted again, so do not"
        " repeat the command. Mend the cause, then see 'gnt-job list' and 'gnt-job"
        " watch'."
    )
