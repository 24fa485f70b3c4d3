"""Memory of this process: locked into RAM, and returned to the system after large use.

The C library keeps freed memory for later allocations, in one arena per thread. After a
request of many megabytes each thread that served one would keep as much.
"""

import ctypes
import logging
import os
from typing import Final

from ganeti.base.filesystem import files

_log = logging.getLogger(__name__)

#: Flags of mlockall(2) on Linux: present and future memory; pages when they are used.
_MCL_CURRENT: Final = 1
_MCL_FUTURE: Final = 2
_MCL_ONFAULT: Final = 4
#: Parameter of mallopt(3): the largest number of arenas.
_M_ARENA_MAX: Final = -8
_STATUS: Final = "/proc/self/status"


def status() -> dict[str, str]:
    """Return the fields of ``/proc/self/status``; see proc(5). Raises OSError."""
    lines = files.text_of(_STATUS, files.MAX_PROC).splitlines()
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name: value.strip() for name, value in pairs}


def lock(*, read_all: bool = True) -> None:
    """Lock all present and future memory of this process.

    Args:
        read_all: also read pages that were not used yet; else these are locked when
            they are used.

    Raises:
        OSError: it cannot be locked.
    """
    flags = _MCL_CURRENT | _MCL_FUTURE | (0 if read_all else _MCL_ONFAULT)
    library = ctypes.CDLL(None, use_errno=True)
    try:
        code = library.mlockall(flags)
    except AttributeError as err:
        raise OSError("no mlockall") from err
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def use_one_arena() -> None:
    """Let all threads allocate from one arena, for services that must stay small.

    Python threads rarely allocate at the same time. Call it before the first thread
    starts. Without glibc this has no effect.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Return freed memory to the system; takes some milliseconds.

    Locked memory is unlocked for that time, because locked pages cannot be returned
    (``MADV_DONTNEED`` in madvise(2)). Afterwards the pages that are left are locked;
    reading all would bring the returned ones back. Without glibc this has no effect.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return
    try:
        is_locked = status().get("VmLck", "0 kB") != "0 kB"
        if is_locked:
            library.munlockall()
        library.malloc_trim(0)
        if is_locked:
            lock(read_all=False)
    except OSError as err:
        _log.warning("memory is not locked any more: %s", err)
