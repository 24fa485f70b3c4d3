"""Shared and exclusive locks, by level: who waits for whom in the master daemon.

`rules` decides, `SharedLock` puts threads to sleep, `LockSet` takes many locks of a
level at once, `LockManager` keeps the order between levels. What an operation needs
does not belong here. Source: design 2.1, "Locking improvements".
"""

from ganeti.locking.lockset import LockSet
from ganeti.locking.manager import BGL, Level, LockManager, Request
from ganeti.locking.pipecondition import PipeCondition
from ganeti.locking.sharedlock import LockInfo, SharedLock

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
