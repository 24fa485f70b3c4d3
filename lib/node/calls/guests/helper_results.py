"""The result of an installation in a helper machine: bytes of an untrusted guest.

The first line is `_STARTED` from the moment when the program of the image has begun,
and `_ENDED` with the exit code of the script at the end; lines of its output follow. A
zero byte ends the text. Documented in ``doc/os-interface.rst``.
"""

import re
from typing import Any, Final

from ganeti.node.calls.os import os_scripts

#: Bytes at the beginning of the disk that are read.
MAX_BYTES: Final = 64 * 1024
_STARTED: Final = b"ganeti-install-1 started"
_ENDED: Final = re.compile(rb"ganeti-install-1 exit (0|[1-9][0-9]{0,2})")
_MAX_CODE: Final = 255


def parsed(data: bytes) -> list[Any]:
    """Return ``[state, exit code or null, lines fit to be shown]``.

    The state is ``none`` for an empty disk, ``started``, ``ended``, or ``wrong`` for
    anything else, with the first line.
    """
    text = data[:MAX_BYTES].partition(b"\0")[0]
    head, _, output = text.partition(b"\n")
    if not text:
        return ["none", None, []]
    if text.rstrip(b"\n") == _STARTED:
        return ["started", None, []]
    match = _ENDED.fullmatch(head)
    if match is None or int(match[1]) > _MAX_CODE:
        return ["wrong", None, os_scripts.last_lines(head)[:1]]
    lines = [line for line in os_scripts.last_lines(output) if line.strip()]
    return ["ended", int(match[1]), lines]
