"""A runner that waits for nodes that are silent when an opcode is continued.

Daemons of the master and of its nodes are often restarted together, as by an upgrade.
An opcode that the new master daemon continues must not fail because it is the first to
be ready: what it leaves behind would be half done.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.clock import Clock
from ganeti.operations.mcpu.shared_answers import acts
from ganeti.protocols.rpc import Result, Runner

#: Seconds from the first call during which silent nodes are asked again. Node daemons
#: start in a few seconds; a node that has died delays the opcode by this time.
PATIENCE_S: Final = 30.0
#: Seconds between two attempts.
POLL_S: Final = 1.0


class PatientRunner(Runner):
    """A runner that repeats calls without an effect, for a limited time.

    Args:
        inner: calls the nodes.
        clock: measures the time, and pauses.
    """

    def __init__(self, inner: Runner, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._end: float | None = None

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any] | Callable[[str], Sequence[Any]] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes, see `Runner`."""
        clock, never = self._clock, threading.Event()
        if self._end is None:
            self._end = clock.monotonic() + PATIENCE_S
        results = dict(self._inner.call(procedure, nodes, args, timeout_s=timeout_s))
        while clock.monotonic() < self._end:
            # A lost call that acts may have had its effect; its caller decides.
            silent = [
                node
                for node, result in results.items()
                if result.is_silent and not (result.is_lost and acts(procedure, args))
            ]
            if not silent:
                break
            clock.wait(never, POLL_S)
            results |= self._inner.call(procedure, silent, args, timeout_s=timeout_s)
        return results
