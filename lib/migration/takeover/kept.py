"""Owners and modes of a node's files, kept for the way back.

The daemons of this implementation run as root, others as users of their own. No file
that the others need is removed, so their owners and modes are enough.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths

#: Most rows of the list: a queue has at most 5,000 live jobs.
_MAX_ROWS: Final = 1_000_000


class Row(NamedTuple):
    """Owner and mode of one file or directory."""

    path: str
    uid: int
    gid: int
    mode: int


def keep(paths: Paths, target: str) -> int:
    """Write the owners and modes of this node's files; return their number.

    Does nothing if the list is there: after an interruption, the first one counts.
    """
    if os.path.exists(target):
        return 0
    rows = [row for top in _tops(paths) for row in _walk(top)]
    files.write_file(target, msgspec.json.encode(rows), mode=0o600)
    return len(rows)


def restore(paths: Paths, target: str) -> int:
    """Give the files that still exist their owners and modes; return their number.

    New files of the queue get the owners and modes of the queue itself.
    """
    try:
        rows = msgspec.json.decode(
            files.read_file(target, max_size=files.WHOLE_STATE), type=list[Row]
        )
    except FileNotFoundError:
        return 0
    return sum(map(_restore, [*rows[:_MAX_ROWS], *_new_in_queue(paths, rows)]))


def _new_in_queue(paths: Paths, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the wanted owners and modes of files of the queue that are not listed."""
    known = {row.path: row for row in rows}
    queue = known.get(paths.data("queue"))
    if queue is None:
        return
    for row in _walk(queue.path):
        if row.path not in known:
            mode = queue.mode if os.path.isdir(row.path) else queue.mode & 0o666
            yield Row(row.path, queue.uid, queue.gid, mode)


def _tops(paths: Paths) -> tuple[str, ...]:
    return paths.data_dir, paths.run_dir, paths.log_dir


def _walk(top: str) -> Iterator[Row]:
    yield from _row(top)
    for directory, names, others in os.walk(top):
        for name in sorted((*names, *others)):
            yield from _row(os.path.join(directory, name))


def _row(path: str) -> Iterator[Row]:
    with contextlib.suppress(FileNotFoundError):
        state = os.lstat(path)
        if stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode):
            yield Row(path, state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode))


def _restore(row: Row) -> bool:
    try:
        fd = os.open(row.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.fchown(fd, row.uid, row.gid)
        os.fchmod(fd, row.mode)
    finally:
        os.close(fd)
    return True
