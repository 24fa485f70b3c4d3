"""Atomic writing of the files of placement programs.

Pipes, terminals and other special files are written in place.
"""

import os
import stat
from typing import Final

#: Mode of a new file, before the umask.
_NEW: Final = 0o666


def text(path: str, content: str) -> None:
    """Write a text file; an existing file stays until all is written.

    Raises:
        OSError: names the path; an ordinary file is unchanged.
    """
    try:
        _write(path, content)
    except OSError as err:
        err.filename = path
        raise


def _write(path: str, content: str) -> None:
    status = _status(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(content)
        return
    from ganeti.base.filesystem import files

    if status is None:
        mask = os.umask(0)
        os.umask(mask)
        files.write_file(os.path.realpath(path), content, mode=_NEW & ~mask)
        return
    uid, gid = (-1, -1) if os.geteuid() else (status.st_uid, status.st_gid)
    mode = stat.S_IMODE(status.st_mode)
    files.write_file(os.path.realpath(path), content, mode=mode, uid=uid, gid=gid)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
