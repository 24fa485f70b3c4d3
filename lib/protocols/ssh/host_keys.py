"""Public host keys of a machine, in the form ``type base64``, and the file known_hosts.

A node reports its own keys, so they are data: `one` and `checked` accept nothing but
keys, written again, and not many of them.

The cluster's known_hosts has the host keys of each node under its name. The name of the
cluster is an alias with the keys of all nodes, for scripts. Nodes whose keys are not
recorded, as in clusters of earlier releases, are known under the alias alone: there
they share the keys of the first master.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import files
from ganeti.protocols.ssh import keys

if TYPE_CHECKING:
    # Commands that read known_hosts alone load no records.
    from ganeti.model import objects

_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")


def format_known_hosts(
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


def write_known_hosts(
    path: str,
    alias: str,
    shared: Iterable[str],
    nodes: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Write the known_hosts file, see `format_lines`."""
    write_known_hosts_text(path, format_known_hosts(alias, shared, nodes))


def write_known_hosts_text(path: str, text: str) -> None:
    """Write the known_hosts file."""
    files.write_file(path, text, mode=0o644)


def read_known_hosts(path: str) -> list[tuple[tuple[str, ...], str]]:
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


#: Most keys of one node: of each type the present, the next and a former one.
MAX_KEYS: Final = 9


def one(text: str, kind: str) -> str:
    """Return the key of a public key file, without its comment.

    Raises:
        OpPrereqError: the text is not exactly one key of this type.
    """
    return keys.one_public_key(text, kind, "").rstrip()


def checked(lines: Sequence[str]) -> tuple[str, ...]:
    """Return keys that a node reported: written again, each once, in their order.

    Raises:
        OpPrereqError: there are too many, or one of them is not exactly one key.
    """
    if len(lines) > MAX_KEYS:
        raise errors.OpPrereqError(
            f"SSH host keys: wanted at most {MAX_KEYS} of one node, found {len(lines)}",
            ecodes.ECODE_INVAL,
        )
    return tuple(dict.fromkeys(one(line, keys.kind_of(line)) for line in lines))


def own(sshd_dir: str, suffix: str = "") -> tuple[str, ...]:
    """Return this machine's keys, of the files that sshd has by default.

    Args:
        sshd_dir: directory of the files.
        suffix: of the names of the private keys, for keys that are not used yet.

    Raises:
        OpPrereqError: a file is damaged.
    """
    present = []
    for kind in keys.ALGORITHMS:
        try:
            path = f"{keys.host_key_path(sshd_dir, kind)}{suffix}.pub"
            present.append(one(files.read_file(path).decode(errors="replace"), kind))
        except FileNotFoundError:
            continue
    return tuple(present)


def rsa_body(lines: Iterable[str]) -> str:
    """Return the base64 part of the RSA key among keys, empty if there is none."""
    bodies = (keys.body(line) for line in lines if line.startswith("ssh-rsa "))
    return next(bodies, "")


def shared(cluster: "objects.Cluster", nodes: "Iterable[objects.Node]") -> list[str]:
    """Return the keys that nodes without recorded keys are expected to have."""
    if all(node.ssh_host_keys for node in nodes):
        return []
    recorded = {"ssh-rsa": cluster.rsahostkeypub, "ssh-dss": cluster.dsahostkeypub}
    return [f"{kind} {body}" for kind, body in recorded.items() if body]


def known_hosts_text(snapshot: "objects.Snapshot") -> str:
    """Return the content of known_hosts for a configuration."""
    nodes = snapshot.nodes.values()
    return format_known_hosts(
        snapshot.cluster.cluster_name,
        shared(snapshot.cluster, nodes),
        {node.name: node.ssh_host_keys for node in nodes},
    )


def are_recorded(snapshot: "objects.Snapshot") -> bool:
    """Return whether the keys of any node are recorded."""
    return any(node.ssh_host_keys for node in snapshot.nodes.values())


def differs(path: str, text: str) -> bool:
    """Return whether a file of known_hosts is missing or has another content."""
    try:
        return files.read_file(path) != text.encode()
    except FileNotFoundError:
        return True


def refresh(path: str, snapshot: "objects.Snapshot") -> bool:
    """Write known_hosts if it is not that of the configuration; return whether it was.

    While no node has recorded keys, the file is left as it is.
    """
    text = known_hosts_text(snapshot)
    if not are_recorded(snapshot) or not differs(path, text):
        return False
    write_known_hosts_text(path, text)
    return True
