"""A pause in an operation, which ends when a client asks to kill the job."""

import threading

from ganeti.base.clock import Clock
from ganeti.master.jqueue.executor import Callbacks
from ganeti.operations.mcpu.present_waits import PresentWaits, Wait


class Pauses:
    """The pauses of one opcode."""

    def __init__(self, clock: Clock, callbacks: Callbacks, waits: PresentWaits) -> None:
        self._clock = clock
        self._callbacks = callbacks
        self._waits = waits
        self._is_killed = threading.Event()

    def wait(self, seconds: float) -> None:
        """Wait.

        Raises:
            Canceled: a client asked to kill the job before the time ran out.
        """
        wait = Wait("", (), self._clock.monotonic(), seconds)
        with self._waits.during(self._callbacks.owner, wait):
            is_killed = self._clock.wait(self._is_killed, seconds)
        if is_killed:
            self._callbacks.check_canceled()

    def end(self) -> None:
        """End the present pause and all later ones; for other threads."""
        self._is_killed.set()
