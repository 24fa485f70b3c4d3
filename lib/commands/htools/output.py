"""Output that placement programs share: tables asked for, and saved clusters."""

import os
import stat
import sys
from typing import Final

import msgspec
import numpy as np

from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.state import node_state

#: Mode of a new file, before the umask.
_NEW: Final = 0o666


def save_text(path: str, content: str) -> None:
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


def tables_asked(
    now: node_state.ClusterState, parsed: ParsedOptions, instances: str, nodes: str
) -> None:
    """Print the tables that options ask for, on standard error.

    Args:
        now: the state to print.
        parsed: the options ``pi`` and ``p``.
        instances: title of the table of instances.
        nodes: title of the table of nodes.
    """
    err = sys.stderr
    if parsed["pi"]:
        from ganeti.decisions.htools import tables

        table = "\n".join(tables.instances(now))
        err.write(f"\n{instances}:\n{table}\n")
    nodes_asked(now, parsed, nodes)


def nodes_asked(
    now: node_state.ClusterState, parsed: ParsedOptions, title: str
) -> None:
    """Print the table of nodes if option ``p`` asks for it, on standard error."""
    if parsed["p"] is not None:
        from ganeti.decisions.htools import tables

        table = "\n".join(tables.nodes(now, tables.node_fields(parsed["p"])))
        sys.stderr.write(f"\n{title}:\n{table}\n\n")


class N1Failures(msgspec.Struct, frozen=True):
    """Number of online nodes that fail N+1, and of their instances."""

    nodes: int
    instances: int


def n1_failures(now: node_state.ClusterState) -> N1Failures:
    """Count the online nodes that fail N+1, and their instances."""
    nodes = np.nonzero(now.online & now.fails_n1)[0]
    instances = {i for n in nodes for i in (*now.primaries[n], *now.secondaries[n])}
    return N1Failures(len(nodes), len(instances))
