"""The lock that keeps two programs from repairing at the same time."""

import contextlib
from collections.abc import Iterator
from typing import Final

from ganeti.base import pathutils
from ganeti.base.filesystem import files

_LOCK_FILE: Final = "ganeti-autorepair.lock"


@contextlib.contextmanager
def exclusive(paths: pathutils.Paths, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock of automatic repairs on this node, the master.

    Raises:
        LockError: another program had it for longer than the timeout.
        OSError: the lock file cannot be opened.
    """
    with files.locked(f"{paths.lock_dir}/{_LOCK_FILE}", timeout_s=timeout_s):
        yield
