"""The framing of LUXI messages, shared by both sides."""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

#: The last byte of every message, which never occurs inside a message.
END: Final = b"\x03"
#: Longest request that a server accepts, in bytes: 10,000 jobs at once are about 8 MB.
#: Decoded JSON takes up to twenty times the memory of its text, so this limits memory
#: too.
MAX_MESSAGE_BYTES: Final = 32 << 20
KEY_METHOD: Final = "method"
KEY_ARGS: Final = "args"
KEY_SUCCESS: Final = "success"
KEY_RESULT: Final = "result"
KEY_VERSION: Final = "version"
#: Number of a call that waits, repeated by its answer; not in Ganeti.
KEY_CALL_ID: Final = "call_id"
#: Who asks, as the client claims; not in Ganeti.
KEY_ORIGIN: Final = "origin"
#: Start of an answer without a warning whose result follows, and the end of one.
RESULT_FOLLOWS: Final = b'{"success":true,"result":'
RESULT_ENDS: Final = b"}" + END
#: Only in answers to submissions, while too few copies hold the newest changes;
#: not in Ganeti.
KEY_WARNING: Final = "warning"
#: Longest path in a socket address, without the final zero byte.
_MAX_PATH: Final = 107


@contextlib.contextmanager
def reachable(path: str) -> Iterator[str]:
    """Return a form of a socket's path that is short enough for the kernel.

    Directories of virtual nodes can have long paths.
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
