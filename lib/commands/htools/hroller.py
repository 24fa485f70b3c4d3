"""``hroller``: compute the groups of nodes that may be rebooted together."""

import sys
from typing import Final

from ganeti.commands.htools import loading
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools import rolling_reboot
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.state import node_state

NAME: Final = "hroller"


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _run, sys.argv[1:])


def _run(parsed: ParsedOptions) -> int:
    cluster = loading.load(parsed)
    now = node_state.derive(cluster)
    loading.save(parsed, cluster, "original", "before hroller run")
    _check_master(cluster, parsed)
    options = rolling_reboot.RebootOptions(
        group=_group(cluster, parsed["G"]),
        tags=parsed["nt"],
        offline=bool(parsed["offm"]),
        skip=bool(parsed["snr"]),
        ignore=bool(parsed["inr"]),
        full=bool(parsed["fe"]),
    )
    nodes = rolling_reboot.chosen(now, options)
    if not nodes:
        raise ProgramError("Cannot create node graph")
    graph = rolling_reboot.graph(cluster, nodes, offline=options.offline)
    colouring = rolling_reboot.colour(graph)
    if parsed.verbosity > 2:
        print(f"Node Graph: {_shown(graph)}")
    parts = rolling_reboot.parts(now, options, nodes, rolling_reboot.fewest(colouring))
    if parsed.verbosity > 1:
        print(_compared(colouring))
    _print(cluster, parsed, parts)
    return 0


def _check_master(cluster: Cluster, parsed: ParsedOptions) -> None:
    masters = [node.name for node in cluster.nodes if node.master]
    if len(masters) > 1:
        names = ",".join(f'"{name}"' for name in masters)
        raise ProgramError(f"Found more than one master node: [{names}]")
    if masters:
        return
    missing = "No master node found (maybe not supported by backend)."
    if not parsed["f"]:
        raise ProgramError(missing)
    sys.stderr.write(f"Warning: {missing}\n")


def _group(cluster: Cluster, wanted: str | None) -> int | None:
    if wanted is None:
        return None
    for place, group in enumerate(cluster.groups):
        if wanted in {group.name, group.uuid}:
            return place
    raise ProgramError("Cannot find target group.")


def _shown(graph: rolling_reboot.Graph) -> str:
    rows = ",".join(
        f"({node},[{','.join(map(str, others))}])" for node, others in graph.items()
    )
    return f"array ({min(graph)},{max(graph)}) [{rows}]"


def _compared(colourings: dict[str, rolling_reboot.Classes]) -> str:
    """Return the number and sizes of each algorithm's groups, the best one first."""
    names = list(reversed(colourings))
    rows = [
        (name, colourings[name])
        for name in sorted(names, key=lambda n: len(colourings[n]))
    ]
    out, least = "", len(rows[0][1])
    for name, classes in rows:
        count = len(classes)
        if out:
            out += " TIE " if count == least else " LOOSE "
        least = count
        out += f"{name}: {count} ({','.join(str(len(one)) for one in classes)})"
    return out


def _print(
    cluster: Cluster, parsed: ParsedOptions, parts: list[rolling_reboot.RebootGroup]
) -> None:
    if not parsed["nh"]:
        one = parsed["oso"]
        print("'First Reboot Group'" if one else "'Node Reboot Groups'")
    glue = "\n" if parsed["oso"] else ","
    for part in parts[:1] if parsed["oso"] else parts:
        print(glue.join(cluster.nodes[n].name for n in part.nodes))
        if parsed["pm"]:
            for inst, nodes in part.moved().items():
                names = [cluster.nodes[n].name for n in nodes]
                print(f"  {' '.join([cluster.instances[inst].name, *names])}")


if __name__ == "__main__":
    sys.exit(main())
