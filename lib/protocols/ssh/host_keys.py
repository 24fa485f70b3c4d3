"""Public host keys of a machine, in the form ``type base64``.

A node reports its own keys, so they are data: `one` and `checked` accept nothing but
keys, written again, and not many of them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import files
from ganeti.model import objects
from ganeti.protocols.ssh import keys, known_hosts

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


def shared(cluster: objects.Cluster, nodes: Iterable[objects.Node]) -> list[str]:
    """Return the keys that nodes without recorded keys are expected to have."""
    if all(node.ssh_host_keys for node in nodes):
        return []
    recorded = {"ssh-rsa": cluster.rsahostkeypub, "ssh-dss": cluster.dsahostkeypub}
    return [f"{kind} {body}" for kind, body in recorded.items() if body]


def known_hosts_text(snapshot: objects.Snapshot) -> str:
    """Return the content of known_hosts for a configuration."""
    nodes = snapshot.nodes.values()
    return known_hosts.format_lines(
        snapshot.cluster.cluster_name,
        shared(snapshot.cluster, nodes),
        {node.name: node.ssh_host_keys for node in nodes},
    )


def are_recorded(snapshot: objects.Snapshot) -> bool:
    """Return whether the keys of any node are recorded."""
    return any(node.ssh_host_keys for node in snapshot.nodes.values())


def differs(path: str, text: str) -> bool:
    """Return whether a file of known_hosts is missing or has another content."""
    try:
        return files.read_file(path) != text.encode()
    except FileNotFoundError:
        return True


def refresh(path: str, snapshot: objects.Snapshot) -> bool:
    """Write known_hosts if it is not that of the configuration; return whether it was.

    While no node has recorded keys, the file is left as it is.
    """
    text = known_hosts_text(snapshot)
    if not are_recorded(snapshot) or not differs(path, text):
        return False
    known_hosts.write_text(path, text)
    return True
