"""``hscan``: save clusters as text files and print one line per cluster."""

import os
import sys
from typing import Final

from ganeti.base import errors
from ganeti.commands.htools import loading, output, sources
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools import tables
from ganeti.decisions.htools.model import formatting, query, text
from ganeti.decisions.htools.model.cluster import Cluster, DataError
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state

NAME: Final = "hscan"
#: Printed name of this node's own cluster.
_LOCAL: Final = "LOCAL"
_FAILED: Final = 2
_GIB: Final = 1024


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _run, sys.argv[1:], arguments="host 0 none")


def _run(parsed: ParsedOptions) -> int:
    masters = parsed.arguments or [_LOCAL]
    names = [_shown(master) for master in masters]
    width = max(len(name) for name in names)
    if not parsed["nh"]:
        print(
            f"{'Name':{width}s} {'Nodes':>5s} {'Inst':>5s} {'BNode':>5s} {'BInst':>5s}"
            f" {'t_mem':>6s} {'f_mem':>6s} {'t_disk':>6s} {'f_disk':>6s}"
            f" {'Score':>10s}"
        )
    failed = 0
    for master, name in zip(masters, names, strict=True):
        try:
            cluster = _read(master, parsed, is_local=not parsed.arguments)
            now = node_state.derive(cluster)
            print(_line(name.ljust(width), now))
            if parsed["p"] is not None:
                fields = tables.node_fields(parsed["p"])
                print("\n".join(tables.nodes(now, fields)))
            _save(cluster, name, parsed["d"])
        except (DataError, OSError, errors.GenericError) as err:
            failed += 1
            print(f"\nError for {name}: failed to load data. Details:")
            print(sources.reason(err))
    return _FAILED if failed else 0


def _shown(master: str) -> str:
    from ganeti.commands.htools import rest

    return rest.shown(master)


def _read(master: str, parsed: ParsedOptions, *, is_local: bool) -> Cluster:
    """Read a cluster over LUXI or REST."""
    if is_local:
        answers = sources.read_luxi(parsed["L"] or "")
    else:
        from ganeti.commands.htools import rest

        answers = rest.read(master)
    return query.read_cluster(answers, static_memory=0)


def _line(name: str, now: node_state.ClusterState) -> str:
    """Return the line of a cluster: counts, sizes in MiB and GiB, score."""
    cluster = now.cluster
    bad = output.n1_failures(now)
    memory = formatting.fixed(sum(node.total_memory for node in cluster.nodes), 0)
    disk = formatting.fixed(sum(node.total_disk for node in cluster.nodes) / _GIB, 0)
    free_memory = sum(node.free_memory for node in cluster.nodes)
    free_disk = sum(node.free_disk for node in cluster.nodes) // _GIB
    return (
        f"{name} {len(cluster.nodes):5d} {len(cluster.instances):5d} {bad.nodes:5d}"
        f" {bad.instances:5d} {memory:>6s} {free_memory:6d} {disk:>6s} {free_disk:6d}"
        f" {formatting.fixed(components.value(now), 8)}"
    )


def _save(cluster: Cluster, name: str, directory: str) -> None:
    """Write a cluster as a text file named after it."""
    path = os.path.join(directory, f"{name.replace('/', '_')}.data")
    output.save_text(path, text.dump(cluster))


if __name__ == "__main__":
    sys.exit(main())
