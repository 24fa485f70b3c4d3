"""The file ganeti_pub_keys: public keys of all potential master candidates.

One key per line, ``<node uuid> <public key line>``. Several lines of one node are
left-overs, which verification reports.
"""

import os
from collections.abc import Iterable, Mapping, Sequence

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.protocols.ssh import authorized_keys
from ganeti.protocols.ssh.keys import check_line


def read(path: str) -> dict[str, list[str]]:
    """Return node uuid -> public key lines; empty when the file does not exist."""
    try:
        return parse(files.read_file(path).decode())
    except FileNotFoundError:
        return {}


def parse(text: str) -> dict[str, list[str]]:
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


def format_keys(keys: Mapping[str, Iterable[str]]) -> str:
    """Return the file's content for node uuid -> public key lines.

    Raises:
        OpPrereqError: a key is more than one line, which would be a second entry.
    """
    return "".join(
        f"{uuid} {check_line(key)}\n" for uuid, lines in keys.items() for key in lines
    )


def update(path: str, action: str, keys: Mapping[str, Sequence[str]]) -> None:
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
    with authorized_keys.locked(os.path.dirname(path)):
        present = read(path)
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
        files.write_file(path, format_keys(present), mode=0o600)
