"""The calls in progress: ended at the master's request, and limited per kind of disk.

A script of an operating system or a hook can run for hours. If an administrator kills
its job, the master asks the node to end the programs of that call.

A call to a disk that hangs, such as one on a lost file server, keeps its thread
permanently. No kind of disk may take all threads of a lane: a call that would exceed
the share of its kind is refused at once, and the caller tries again.
"""

import collections
import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

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


_KEY: Final = "dev_type"
#: Procedures that name a kind of storage in their first argument.
_BY_FIRST_ARGUMENT: Final = frozenset(
    {"storage_execute", "storage_list", "storage_modify"}
)
#: Arguments are searched for disks down to this level; children of disks are level 4.
_DEPTH: Final = 6


class StorageBusy(Exception):
    """Too many calls for one kind of disk are running; the call was not executed."""


def kinds_of(name: str, args: Sequence[Any]) -> frozenset[str]:
    """Return the kinds of disks that a call may touch, with those of their children.

    Args:
        name: the procedure.
        args: its arguments as JSON types, not validated.
    """
    if name in _BY_FIRST_ARGUMENT:
        return frozenset(arg for arg in args[:1] if isinstance(arg, str))
    return frozenset(_find(args, _DEPTH))


def _find(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, dict):
        kind = value.get(_KEY)
        if isinstance(kind, str):
            yield kind
        value = list(value.values())
    if isinstance(value, list) and depth:
        for item in value:
            yield from _find(item, depth - 1)


class DiskTurns:
    """Counts running calls by lane and kind of disk; thread-safe.

    Args:
        threads: lane -> its number of threads.
    """

    def __init__(self, threads: Mapping[str, int]) -> None:
        #: One thread of four is kept free of each kind.
        self._limits = {lane: max(1, 3 * count // 4) for lane, count in threads.items()}
        self._running: collections.Counter[tuple[str, str]] = collections.Counter()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def taken(self, lane: str, kinds: frozenset[str]) -> Iterator[None]:
        """Count a call while it runs.

        Raises:
            StorageBusy: as many calls for one of its kinds run as may do so.
        """
        limit = self._limits[lane]
        keys = [(lane, kind) for kind in kinds]
        with self._lock:
            for key in keys:
                if self._running[key] >= limit:
                    raise StorageBusy(
                        f"{limit} calls for disks of type {key[1]} are running; if"
                        " they do not end, this storage hangs"
                    )
            self._running.update(keys)
        try:
            yield
        finally:
            with self._lock:
                self._running.subtract(keys)
