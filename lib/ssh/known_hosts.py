"""The cluster's known_hosts file: one alias, the cluster name, for all nodes.

All nodes share the host keys of the first master, so a different key means that a
foreign machine answers.
"""

from collections.abc import Iterable

from ganeti.ssh import keys
from ganeti.utils import files


def format_lines(cluster_name: str, host_keys: Iterable[str]) -> str:
    """Return the file's content for public host key lines."""
    return "".join(
        f"{cluster_name} {line.split()[0]} {keys.body(line)}\n" for line in host_keys
    )


def write(path: str, cluster_name: str, host_keys: Iterable[str]) -> None:
    """Write the known_hosts file."""
    files.write_file(path, format_lines(cluster_name, host_keys), mode=0o644)
