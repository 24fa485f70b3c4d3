"""Tables and numbers about a state that several placement programs print."""

import sys

import msgspec
import numpy as np

from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.state import node_state


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
        from ganeti.decisions.htools.report import tables

        table = "\n".join(tables.instances(now))
        err.write(f"\n{instances}:\n{table}\n")
    nodes_asked(now, parsed, nodes)


def nodes_asked(
    now: node_state.ClusterState, parsed: ParsedOptions, title: str
) -> None:
    """Print the table of nodes if option ``p`` asks for it, on standard error."""
    if parsed["p"] is not None:
        from ganeti.decisions.htools.report import tables

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
