"""``hinfo``: print a cluster's groups, its N+1 redundancy and its score."""

import sys
from typing import Final

from ganeti.commands.htools import loading, output
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools import tables
from ganeti.decisions.htools.model import formatting
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state

NAME: Final = "hinfo"
_GROUP_HEAD: Final = "Group Nodes Instances Bad_Nodes Bad_Instances N+1 Score"
_GROUP_NUMERIC: Final = (False, True, True, True, True, False, True)


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _run, sys.argv[1:])


def _run(parsed: ParsedOptions) -> int:
    cluster = loading.load(parsed)
    now = node_state.derive(cluster)
    print(f"Loaded cluster tags: {','.join(cluster.tags)}")
    counts = (
        _counted(len(cluster.nodes), "node"),
        _counted(len(cluster.instances), "instance"),
        _counted(len(cluster.groups), "node group"),
    )
    print(f"Loaded {', '.join(counts)}")
    suffix = cluster.common_suffix()
    if parsed.verbosity > 2 and suffix:
        print(f"Note: Stripping common suffix of '{suffix}' from names")
    _print_split(cluster, parsed)
    if parsed.verbosity > 1:
        print("Node group information:")
        print("\n".join(_groups(cluster)))
    happy = "unhappy" if output.n1_failures(now).nodes else "happy"
    print(f"Cluster is N+1 {happy}")
    sys.stdout.flush()
    output.tables_asked(now, parsed, "Instances instance map", "Cluster status")
    print("Cluster coefficients:")
    print("\n".join(tables.metrics(now)))
    print(f"Cluster score: {formatting.fixed(components.value(now), 8)}")
    return 0


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _print_split(cluster: Cluster, parsed: ParsedOptions) -> None:
    """Print the instances whose nodes are in different groups."""
    split = cluster.split()
    if split:
        print("Found instances belonging to multiple node groups:", flush=True)
        for index in split:
            sys.stderr.write(f"  {cluster.instances[index].name}\n")
    elif parsed.verbosity > 1:
        print("No split instances found")


def _groups(cluster: Cluster) -> list[str]:
    """Return the table of node groups."""
    rows = [_GROUP_HEAD.split()]
    for number, group in enumerate(cluster.groups):
        part = cluster.only_group(number)
        now = node_state.derive(part)
        bad = output.n1_failures(now)
        counts = (len(part.nodes), len(part.instances), bad.nodes, bad.instances)
        rows.append(
            [
                group.name,
                *(str(count) for count in counts),
                str(not bad.nodes),
                formatting.fixed(components.value(now), 8),
            ]
        )
    return tables.layout(rows, _GROUP_NUMERIC, prefix="  ")


if __name__ == "__main__":
    sys.exit(main())
