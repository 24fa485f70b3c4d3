"""The cluster's known_hosts file: the host keys of each node under its name.

The name of the cluster is an alias with the keys of all nodes, for scripts. Nodes whose
keys are not recorded, as in clusters of earlier releases, are known under the alias
alone: there they share the keys of the first master.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.protocols.ssh import keys

_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")


def format_lines(
    alias: str, shared: Iterable[str], nodes: Mapping[str, Iterable[str]] | None = None
) -> str:
    """Return the file's content.

    Args:
        alias: name of the cluster.
        shared: public host key lines that are valid for nodes without own keys.
        nodes: node name -> public host key lines.

    Raises:
        ProgrammerError: a name could match other names, or end the line.
    """
    lines = [_line(alias, line) for line in shared]
    for name, of_node in sorted((nodes or {}).items()):
        lines += [_line(f"{_plain(name)},{alias}", line) for line in of_node]
    return "".join(lines)


def _plain(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise errors.ProgrammerError(f"known_hosts: {name!r} is not a host name")
    return name


def _line(names: str, line: str) -> str:
    return f"{names} {line.split(maxsplit=1)[0]} {keys.body(line)}\n"


def write(
    path: str,
    alias: str,
    shared: Iterable[str],
    nodes: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Write the known_hosts file, see `format_lines`."""
    write_text(path, format_lines(alias, shared, nodes))


def write_text(path: str, text: str) -> None:
    """Write the known_hosts file."""
    files.write_file(path, text, mode=0o644)


def read(path: str) -> list[tuple[tuple[str, ...], str]]:
    """Return (names, key in the form ``type base64``) of each line, none without file.

    Lines of other forms, such as hashed names, are left out.
    """
    try:
        text = files.read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return []
    rows = [line.split() for line in text.splitlines()]
    return [
        (tuple(words[0].split(",")), f"{words[1]} {words[2]}")
        for words in rows
        if len(words) > 2 and words[0][0] not in "#@|"
    ]
