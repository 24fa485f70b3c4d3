"""How LUXI messages look on the wire; shared by both ends."""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

#: Ends every message and never occurs inside one.
END: Final = b"\x03"
#: Longest request that a server takes: 10,000 jobs at once are about 8 MB. Decoded
#: JSON takes up to twenty times the room of its text, so this bounds memory too.
MAX_MESSAGE_BYTES: Final = 32 << 20
KEY_METHOD: Final = "method"
KEY_ARGS: Final = "args"
KEY_SUCCESS: Final = "success"
KEY_RESULT: Final = "result"
KEY_VERSION: Final = "version"
#: Only in answers to submissions, while too few copies hold the newest changes;
#: not in Ganeti.
KEY_WARNING: Final = "warning"
#: Longest path that fits a socket address, with the final zero byte left out.
_MAX_PATH: Final = 107


@contextlib.contextmanager
def reachable(path: str) -> Iterator[str]:
    """Give the path of a socket a form that is short enough for the kernel.

    Directories of virtual nodes can lie deep.
    """
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield path
        return
    directory, name = os.path.split(path)
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
