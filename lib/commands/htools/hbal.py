"""``hbal``: compute the moves that balance a node group."""

import sys
from collections.abc import Callable
from typing import Final

import msgspec

from ganeti.commands.htools import loading, output
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.balance import greedy
from ganeti.decisions.htools.model import formatting
from ganeti.decisions.htools.model.cluster import NONE, Cluster
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state

NAME: Final = "hbal"


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _run, sys.argv[1:])


def _run(parsed: ParsedOptions) -> int:
    cluster = loading.load(parsed)
    limits = loading.limits(parsed)
    print(f"Loaded {len(cluster.nodes)} nodes, {len(cluster.instances)} instances")
    suffix = cluster.common_suffix()
    if parsed.verbosity > 1 and suffix:
        print(f"Note: Stripping common suffix of '{suffix}' from names")
    if parsed["G"] in {
        name for group in cluster.empty_groups for name in (group.name, group.uuid)
    }:
        print(f"Group size 0 nodes, 0 instances\nSelected node group: {parsed['G']}")
        print("Cluster is empty, exiting.")
        return 0
    group = _group(cluster, parsed["G"])
    if parsed.verbosity > 1:
        _print_split(cluster)
    part = cluster.only_group(group)
    now = node_state.derive(part, limits, parsed["ext"])
    print(f"Group size {len(part.nodes)} nodes, {len(part.instances)} instances")
    print(f"Selected node group: {cluster.groups[group].name}")
    if not cluster.instances:
        print("Cluster is empty, exiting.")
        return 0
    _report(now, parsed)
    loading.save(parsed, cluster, "original", "before balancing")
    _show(now, parsed, "Initial")
    first, lowest = components.value(now), components.ideal(now)
    _coefficients(now, parsed, "Initial", first)
    if first - lowest < parsed["e"]:
        print(
            f"Cluster is already well balanced (initial score"
            f" {formatting.general(first)},\noptimum score due to N+1 reservations"
            f" {formatting.general(lowest)},\nminimum score"
            f" {formatting.general(parsed['e'])}).\nNothing to do, exiting"
        )
        return 0
    steps = _plan(now, parsed, lowest, suffix)
    _conclude(now, parsed, first, steps)
    _commands(part, parsed, steps, suffix)
    _save_part(parsed, cluster, now.as_cluster())
    _show(now, parsed, "Final")
    if parsed.verbosity > 3:
        _totals("Original:", node_state.derive(part, limits, parsed["ext"]))
        _totals("Final:   ", now)
    return _execute(part, parsed, steps) if parsed["X"] else 0


def _execute(
    part: Cluster, parsed: ParsedOptions, steps: list[greedy.BalanceStep]
) -> int:
    """Submit the jobs of the plan, set by set.

    Raises:
        ProgramError: the cluster was not loaded from its master.
    """
    if parsed["L"] is None:
        raise ProgramError(f"{NAME}: Execution of commands possible only on LUXI")
    # Imported here because few runs submit jobs.
    from ganeti.commands.htools import execute

    names = [node.name for node in part.nodes]
    sets = [
        [
            execute.Job(
                part.instances[step.inst].name,
                greedy.opcodes(step, part.instances[step.inst], names.__getitem__),
            )
            for step in members
        ]
        for members in greedy.job_sets(steps)
    ]
    return execute.run(NAME, parsed, sets[:1] if parsed["fjg"] else sets)


def _print_split(cluster: Cluster) -> None:
    """Print the instances whose nodes are in different groups."""
    names = [f"  {cluster.instances[index].name}\n" for index in cluster.split()]
    if names:
        sys.stderr.write("Found instances belonging to multiple node groups:\n")
        sys.stderr.write("".join(names))
        sys.stderr.write("These instances will not be moved.\n")


def _group(cluster: Cluster, wanted: str | None) -> int:
    """Return the node group to balance."""
    if wanted is None:
        if len(cluster.groups) == 1:
            return 0
        message = "Found multiple node groups:"
    else:
        groups = [
            k
            for k, group in enumerate(cluster.groups)
            if wanted in {group.name, group.uuid}
        ]
        if len(groups) == 1:
            return groups[0]
        message = f"Node group {wanted} not found. Node group list is:"
    names = "\n".join(f"  {group.name}" for group in cluster.groups)
    sys.stderr.write(f"{message}\n{names}\n")
    raise ProgramError("Aborting.")


def _report(now: node_state.ClusterState, parsed: ParsedOptions) -> None:
    """Print how many nodes and instances fail N+1 or violate a policy."""
    bad = output.n1_failures(now)
    if parsed.verbosity >= 1:
        print(
            f"Initial check done: {bad.nodes} bad nodes, {bad.instances} bad instances."
        )
    if bad.nodes:
        print(
            "Cluster is not N+1 happy, continuing but no guarantee that the cluster"
            " will end N+1 happy."
        )
    over = [n for n in range(now.size) if _over_policy(now, n)]
    if over:
        print(
            f"The cluster contains {len(over)} policy-violating nodes.\nContinuing, but"
            " the set of moves might be too restricted; consider using the"
            " --ignore-soft-errors option."
        )


def _over_policy(now: node_state.ClusterState, node: int) -> bool:
    ratio = now.cpu_ratio[node]
    many = ratio >= 0 and now.per_cpu(now.u_cpu)[node] > ratio
    return bool(many or now.inst_spin[node] > now.hi_spin[node])


def _show(now: node_state.ClusterState, parsed: ParsedOptions, when: str) -> None:
    """Print the tables that options ask for."""
    maps = f"{when} instance map", f"{when} cluster status"
    output.tables_asked(now, parsed, *maps)


def _coefficients(
    now: node_state.ClusterState, parsed: ParsedOptions, when: str, value: float
) -> None:
    if parsed.verbosity > 2:
        # Imported here because few runs are this verbose.
        from ganeti.decisions.htools import tables

        gap = " " if when == "Initial" else "   "
        print(f"{when} coefficients:{gap}overall {formatting.fixed(value, 8)}")
        print("\n".join(tables.metrics(now)))
    elif when == "Initial":
        print(f"Initial score: {formatting.fixed(value, 8)}")


def _plan(
    now: node_state.ClusterState, parsed: ParsedOptions, lowest: float, suffix: str
) -> list[greedy.BalanceStep]:
    """Compute the moves and print each."""
    print("Trying to minimize the CV...")
    cluster = now.cluster
    node = _namer([node.name for node in cluster.nodes], suffix)
    names = [inst.name.removesuffix(suffix) for inst in cluster.instances]
    wide = max(len(name) for name in names)
    pair = 2 * max(len(node(n)) for n in range(len(cluster.nodes))) + 1

    def places(nodes: tuple[int, int]) -> str:
        return ":".join(node(n) for n in nodes if n != NONE).ljust(pair)

    goal, options = loading.goal(parsed), loading.moves(parsed)
    steps = []
    for step in greedy.plan(now, goal, options, lowest):
        steps.append(step)
        print(
            f"  {len(steps):3d}. {names[step.inst]:{wide}s} {places(step.before)} =>"
            f" {places(step.after)} {formatting.fixed(step.score, 8):>12s}"
            f" a={greedy.letters(step, node)}",
            flush=True,
        )
    return steps


def _namer(names: list[str], suffix: str) -> Callable[[int], str]:
    short = [name.removesuffix(suffix) for name in names]
    return short.__getitem__


def _conclude(
    now: node_state.ClusterState,
    parsed: ParsedOptions,
    first: float,
    steps: list[greedy.BalanceStep],
) -> None:
    last = steps[-1].score if steps else first
    if not steps:
        print("No solution found")
    elif parsed.verbosity > 2:
        _coefficients(now, parsed, "Final", last)
    else:
        print(
            f"Cluster score improved from {formatting.fixed(first, 8)} to"
            f" {formatting.fixed(last, 8)}"
        )
    if parsed.verbosity >= 1:
        print(f"Solution length={len(steps)}")


def _commands(
    part: Cluster, parsed: ParsedOptions, steps: list[greedy.BalanceStep], suffix: str
) -> None:
    """Print or write the commands that execute the moves."""
    if parsed["C"] is None:
        return
    node = _namer([node.name for node in part.nodes], suffix)
    sets = greedy.job_sets(steps)
    if parsed["fjg"]:
        sets = sets[:1]

    def work(step: greedy.BalanceStep) -> list[str]:
        inst = part.instances[step.inst]
        name = inst.name.removesuffix(suffix)
        return greedy.commands(step, name, node, running=inst.running)

    lines = greedy.listing([[work(step) for step in members] for members in sets])
    if parsed["C"]:
        output.save_text(parsed["C"], greedy.script(lines))
        print(f"The commands have been written to file '{parsed['C']}'")
        return
    print()
    if parsed["fjg"]:
        print("First set of jobs:")
    else:
        print("Commands to run to reach the above solution:")
    for line in greedy.on_screen(lines):
        print(line)


def _save_part(parsed: ParsedOptions, cluster: Cluster, part: Cluster) -> None:
    """Save the nodes and instances of a group, with all groups, for option -S."""
    place = cluster.groups.index(part.groups[0])
    nodes = tuple(msgspec.structs.replace(node, group=place) for node in part.nodes)
    whole = msgspec.structs.replace(part, groups=cluster.groups, nodes=nodes)
    loading.save(parsed, whole, "balanced", "after balancing")


def _totals(title: str, now: node_state.ClusterState) -> None:
    """Print the free memory and disk of all nodes, including offline ones."""
    memory = formatting.fixed(float(now.unallocated.sum()), 0)
    disk = formatting.fixed(float(now.f_dsk.sum()), 0)
    print(f"{title} mem={memory} disk={disk}")


if __name__ == "__main__":
    sys.exit(main())
