"""Shared and exclusive locks by level, for the threads of the master daemon.

`decisions.lock_rules` decides, `SharedLock` blocks threads, `LockSet` takes many locks
of a level at once, `LockManager` enforces the order of levels. The locks of a
particular operation do not belong here. Source: design 2.1, "Locking improvements".
"""

from ganeti.master.locking.lockset import LockSet
from ganeti.master.locking.manager import BGL, Level, LockManager, Request
from ganeti.master.locking.sharedlock import LockInfo, PipeCondition, SharedLock

__all__ = [
    "BGL",
    "Level",
    "LockInfo",
    "LockManager",
    "LockSet",
    "PipeCondition",
    "Request",
    "SharedLock",
]
