"""Locking of a daemon into RAM, so that it continues when the disk fails."""

import logging
import resource
from typing import Final

from ganeti.base import memory

_log = logging.getLogger(__name__)

#: Number of the capability IPC_LOCK.
_CAP_IPC_LOCK: Final = 14


def _may_lock_anything() -> bool:
    """Return whether this process has the capability that lifts the limit."""
    try:
        return bool(int(memory.status()["CapEff"], 16) >> _CAP_IPC_LOCK & 1)
    except (OSError, KeyError, ValueError):
        return False


def lock_memory() -> bool:
    """Lock all present and future memory of this process; return whether it worked.

    Failures are logged: a daemon that can be paged out is better than none. With a
    finite limit nothing is locked, since later allocations would fail; a process with
    the capability to lock memory needs no limit.
    """
    try:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    except (OSError, ValueError) as err:
        if not _may_lock_anything():
            _log.warning(
                "memory is not locked: the limit of locked memory is not unlimited: %s",
                err,
            )
            return False
    try:
        memory.lock()
    except OSError as err:
        _log.warning("memory is not locked: %s", err)
        return False
    _log.debug("memory is locked")
    return True
