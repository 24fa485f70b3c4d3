"""Tables and facts about a state that several placement programs print."""

import dataclasses
import sys

from ganeti.htools import state, tables
from ganeti.tools.htools.options import Parsed


def tables_asked(now: state.State, parsed: Parsed, instances: str, nodes: str) -> None:
    """Print the tables that options ask for, on standard error.

    Args:
        now: what to show.
        parsed: the options ``pi`` and ``p``.
        instances: title of the table of instances.
        nodes: the same of nodes.
    """
    err = sys.stderr
    if parsed["pi"]:
        told = "\n".join(tables.instances(now))
        err.write(f"\n{instances}:\n{told}\n")
    if parsed["p"] is not None:
        told = "\n".join(tables.nodes(now, tables.node_fields(parsed["p"])))
        err.write(f"\n{nodes}:\n{told}\n\n")


@dataclasses.dataclass(frozen=True, slots=True)
class Bad:
    """Numbers of nodes online that fail N+1, and of instances there."""

    nodes: int
    instances: int


def bad(now: state.State) -> Bad:
    """Count nodes that fail N+1."""
    online = now.fixed.online
    nodes = [n for n in range(len(online)) if online[n] and now.failing[n]]
    found = {i for n in nodes for i in (*now.primaries[n], *now.secondaries[n])}
    return Bad(len(nodes), len(found))
