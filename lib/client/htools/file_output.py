"""Files that placement programs write: whole, or not at all.

What is no ordinary file, such as a pipe or a terminal, is written to as it is.
"""

import os
import stat
from typing import Final

#: Rights of a new file, before the process's mask.
_NEW: Final = 0o666


def text(path: str, content: str) -> None:
    """Write a text file; what was there stays until all is written.

    Raises:
        OSError: naming the path; nothing changed, but for what is no ordinary file.
    """
    try:
        _write(path, content)
    except OSError as err:
        err.filename = path
        raise


def _write(path: str, content: str) -> None:
    status = _found(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(content)
        return
    from ganeti.utils import files

    if status is None:
        mask = os.umask(0)
        os.umask(mask)
        files.write_file(os.path.realpath(path), content, mode=_NEW & ~mask)
        return
    uid, gid = (-1, -1) if os.geteuid() else (status.st_uid, status.st_gid)
    mode = stat.S_IMODE(status.st_mode)
    files.write_file(os.path.realpath(path), content, mode=mode, uid=uid, gid=gid)


def _found(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
