"""Calls that run programs of users, by the id that the master gave them.

A script of an operating system or a hook can run for hours. If an administrator kills
its job, the master asks the node to end the programs of that call.
"""

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Final

from ganeti.node.calls.registry import LocalNode, procedure

_log = logging.getLogger(__name__)
_ID: Final = re.compile(r"[0-9a-f]{16}")


class RunningCalls:
    """The calls in progress; thread-safe.

    Args:
        end_children: ends the child processes that a thread waits for, and keeps the
            thread from starting others until it is called with false.
    """

    def __init__(self, end_children: Callable[[threading.Thread, bool], None]) -> None:
        self._end_children = end_children
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}

    @contextlib.contextmanager
    def running(self, call_id: str) -> Iterator[None]:
        """Register this thread's call while it runs; an invalid id is ignored."""
        if not _ID.fullmatch(call_id):
            yield
            return
        me = threading.current_thread()
        with self._lock:
            self._threads[call_id] = me
        try:
            yield
        finally:
            with self._lock:
                del self._threads[call_id]
                self._end_children(me, False)

    def abort(self, call_id: str) -> bool:
        """End the programs of a call; return whether the call was running."""
        with self._lock:
            thread = self._threads.get(call_id)
            if thread is None:
                return False
            _log.warning("ending the programs of a call on request of the master")
            self._end_children(thread, True)
            return True


@procedure("call_abort")
def call_abort(node: LocalNode, call_id: str) -> bool:
    """End the programs of a call; return whether the call was running."""
    calls = node.running_calls
    return calls is not None and calls.abort(call_id)
