"""Public keys that may log in: the files authorized_keys and ganeti_pub_keys.

The second has the keys of all potential master candidates: one per line,
``<node uuid> <public key line>``. Several lines of one node are left-overs, which
verification reports.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.protocols.ssh.keys import ALGORITHMS, check_line

_ALGORITHMS = frozenset(name for names in ALGORITHMS.values() for name in names)
#: Bytes of the administrator's lines that are no UTF-8 are written as they were.
_KEPT = "surrogateescape"


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


def read(path: str, *, odd_bytes: str = "replace") -> list[str]:
    """Return the lines of the file; empty when the file does not exist."""
    try:
        return files.read_file(path).decode(errors=odd_bytes).splitlines()
    except FileNotFoundError:
        return []


def add(path: str, keys: Iterable[str]) -> int:
    """Add the public key lines that are missing; return the number of added lines.

    Raises:
        OpPrereqError: a key is more than one line.
    """
    ensure_directory(os.path.dirname(path))
    with locked(os.path.dirname(path)):
        lines = read(path, odd_bytes=_KEPT)
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
        lines = read(path, odd_bytes=_KEPT)
        kept = [line for line in lines if identity(line) not in unwanted]
        if len(kept) != len(lines):
            _write(path, kept)
    return len(lines) - len(kept)


def ensure_directory(path: str) -> None:
    """Create a user's ssh directory, readable by its owner only."""
    os.makedirs(path, mode=0o700, exist_ok=True)


def _write(path: str, lines: list[str]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode(errors=_KEPT)
    files.write_file(path, data, mode=0o600)


def read_node_keys(path: str) -> dict[str, list[str]]:
    """Return node uuid -> public key lines; empty when the file does not exist."""
    try:
        return parse_node_keys(files.read_file(path).decode())
    except FileNotFoundError:
        return {}


def parse_node_keys(text: str) -> dict[str, list[str]]:
    """Return node uuid -> public key lines of a file's content.

    Raises:
        ParseError: a line has no key.
    """
    keys: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        uuid, _, key = line.strip().partition(" ")
        if not key:
            raise errors.ParseError(f"public keys of nodes: line {number} has no key")
        keys.setdefault(uuid, []).append(key)
    return keys


def format_node_keys(keys: Mapping[str, Iterable[str]]) -> str:
    """Return the file's content for node uuid -> public key lines.

    Raises:
        OpPrereqError: a key is more than one line, which would be a second entry.
    """
    return "".join(
        f"{uuid} {check_line(key)}\n" for uuid, lines in keys.items() for key in lines
    )


def update_node_keys(path: str, action: str, keys: Mapping[str, Sequence[str]]) -> None:
    """Change the file.

    Args:
        path: the file.
        action: ``add`` keys, ``replace_or_add`` all keys of the named nodes,
            ``remove`` the named nodes, ``override`` the whole file, ``clear`` it.
        keys: node uuid -> public key lines.

    Raises:
        SshUpdateError: unknown action.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with locked(os.path.dirname(path)):
        present = read_node_keys(path)
        if action == "add":
            for uuid, lines in keys.items():
                have = present.setdefault(uuid, [])
                have += [key.strip() for key in lines if key.strip() not in have]
        elif action == "replace_or_add":
            present |= {uuid: list(lines) for uuid, lines in keys.items()}
        elif action == "remove":
            for uuid in keys:
                present.pop(uuid, None)
        elif action == "override":
            present = {uuid: list(lines) for uuid, lines in keys.items()}
        elif action == "clear":
            present = {}
        else:
            raise errors.SshUpdateError(f"public keys: unknown action {action!r}")
        files.write_file(path, format_node_keys(present), mode=0o600)
