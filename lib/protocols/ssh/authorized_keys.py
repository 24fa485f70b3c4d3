"""The authorized_keys file: public keys that may log in to this node."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator

from ganeti.base.filesystem import files
from ganeti.protocols.ssh.keys import ALGORITHMS, check_line

_ALGORITHMS = frozenset(name for names in ALGORITHMS.values() for name in names)


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Hold the lock for writing key files in a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def identity(line: str) -> tuple[str, str] | None:
    """Return (algorithm, base64 body) of a key line, None for other lines.

    Options before the key and the comment after the key are ignored.
    """
    words = line.split()
    for position, word in enumerate(words[:-1]):
        if word in _ALGORITHMS:
            return word, words[position + 1]
    return None


def read(path: str) -> list[str]:
    """Return the lines of the file; empty when the file does not exist."""
    try:
        return files.read_file(path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def add(path: str, keys: Iterable[str]) -> int:
    """Add the public key lines that are missing; return the number of added lines.

    Raises:
        OpPrereqError: a key is more than one line.
    """
    ensure_directory(os.path.dirname(path))
    with locked(os.path.dirname(path)):
        lines = read(path)
        known = {identity(line) for line in lines}
        new = []
        for key in keys:
            if (ident := identity(key)) not in known:
                known.add(ident)
                new.append(check_line(key))
        if new:
            _write(path, lines + new)
    return len(new)


def remove(path: str, keys: Iterable[str]) -> int:
    """Remove public keys; return the number of removed lines."""
    unwanted = {ident for key in keys if (ident := identity(key)) is not None}
    if not os.path.exists(path):
        return 0
    with locked(os.path.dirname(path)):
        lines = read(path)
        kept = [line for line in lines if identity(line) not in unwanted]
        if len(kept) != len(lines):
            _write(path, kept)
    return len(lines) - len(kept)


def ensure_directory(path: str) -> None:
    """Create a user's ssh directory, readable by its owner only."""
    os.makedirs(path, mode=0o700, exist_ok=True)


def _write(path: str, lines: list[str]) -> None:
    files.write_file(path, "".join(f"{line}\n" for line in lines), mode=0o600)
