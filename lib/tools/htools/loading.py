"""Getting the cluster a placement program works on, and saving it.

Text files and invented clusters; options that change what was loaded.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence

from ganeti.htools import simulate, text
from ganeti.htools.model import Cluster, DataError, Instance, lookup
from ganeti.htools.state import Limits, Row, State
from ganeti.tools.htools import options
from ganeti.tools.htools.options import Parsed

#: Memory (MiB) that may be missing on a node before it is told.
_MISSING_MEMORY = 512
#: The same for disk.
_MISSING_DISK = 1024
_GIB = 1024


class Problem(Exception):
    """Something that ends a program with exit code 1."""


def main(
    program: str, keys: Sequence[str], work: Callable[[Parsed], int], words: list[str]
) -> int:
    """Run a program that takes no arguments; returns its exit code."""
    try:
        parsed = options.parse(words, keys)
    except options.UsageError as err:
        sys.stderr.write(
            f"Command line error: {err}\n\n{options.usage(program, keys)}\n"
        )
        return 2
    except options.ValueProblem as err:
        text_ = f"Error while parsing command line arguments:\n{err}\n"
        sys.stderr.write(text_)
        return 1
    if parsed["help"]:
        print(options.usage(program, keys))
        return 0
    if parsed["version"]:
        print(options.version(program))
        return 0
    if parsed.arguments:
        sys.stderr.write("Error: This program doesn't take any arguments.\n")
        return 1
    try:
        return work(parsed)
    except (Problem, DataError) as err:
        sys.stderr.write(f"Error: {err}\n")
        return 1
    except OSError as err:
        sys.stderr.write(f"Error: {err.filename}: {err.strerror}\n")
        return 1


def load(parsed: Parsed) -> Cluster:
    """Load the cluster that options name and apply options to it."""
    try:
        cluster = _source(parsed)
        cluster = _use(cluster, parsed)
        cluster = _movable(cluster, parsed)
    except (DataError, OSError, UnicodeDecodeError) as err:
        raise Problem(f"failed to load data, aborting: {_reason(err)}") from err
    return _offline(cluster, parsed["O"])


def _reason(err: Exception) -> str:
    if isinstance(err, OSError):
        return f"{err.filename}: {err.strerror}"
    return str(err)


def _source(parsed: Parsed) -> Cluster:
    if parsed.values.get("sim"):
        return simulate.load(parsed["sim"])
    path = parsed["t"]
    if path is None:
        raise DataError("No backend selected! Exiting.")
    with open(path, encoding="utf-8") as stream:
        try:
            data = stream.read()
        except UnicodeDecodeError as err:
            raise DataError(f"{path}: not a text file: {err.reason}") from err
    return text.load(data, path)


def _use(cluster: Cluster, parsed: Parsed) -> Cluster:
    """Set the utilisation of instances."""
    use: dict[str, tuple[float, float, float, float]] | None = None
    if parsed.values.get("nodyn"):
        use = {inst.name: (0.0, 0.0, 0.0, 0.0) for inst in cluster.instances}
    elif parsed.values.get("U"):
        with open(parsed["U"], encoding="utf-8") as stream:
            use = dict(_use_line(line, parsed["U"]) for line in stream)
    if use is None:
        return cluster
    instances = tuple(
        dataclasses.replace(inst, utilisation=use.get(inst.name, inst.utilisation))
        for inst in cluster.instances
    )
    return dataclasses.replace(cluster, instances=instances)


def _use_line(line: str, path: str) -> tuple[str, tuple[float, float, float, float]]:
    cells = line.rstrip("\n").split(" ")
    try:
        name, cpu, memory, disk, net = cells
        return name, (float(cpu), float(memory), float(disk), float(net))
    except ValueError as err:
        found = line.rstrip("\n")
        raise DataError(f"{path}: can't parse utilisation data: '{found}'") from err


def _movable(cluster: Cluster, parsed: Parsed) -> Cluster:
    """Mark instances that may not move: by template, options, or split nodes."""
    chosen = _instances(cluster, parsed.values.get("sel") or ())
    excluded = _instances(cluster, parsed.values.get("exi") or ())
    fixed = set(cluster.split()) | excluded

    def may(index: int, inst: Instance) -> bool:
        selected = not chosen or index in chosen
        return inst.movable and selected and index not in fixed

    instances = tuple(
        dataclasses.replace(inst, movable=may(k, inst))
        for k, inst in enumerate(cluster.instances)
    )
    return dataclasses.replace(cluster, instances=instances)


def _instances(cluster: Cluster, wanted: Iterable[str]) -> set[int]:
    names = [inst.name for inst in cluster.instances]
    found = {name: lookup(names, name) for name in wanted}
    unknown = [f'"{name}"' for name, place in found.items() if place is None]
    if unknown:
        raise DataError(f"Unknown instance(s): [{','.join(unknown)}]")
    return {place for place in found.values() if place is not None}


def _offline(cluster: Cluster, wanted: Iterable[str]) -> Cluster:
    names = [node.name for node in cluster.nodes]
    found = {name: lookup(names, name) for name in wanted}
    unknown = [name for name, place in found.items() if place is None]
    if unknown:
        raise Problem(f"wrong node name(s) set as offline: {','.join(unknown)}\n")
    places = set(found.values())
    nodes = tuple(
        dataclasses.replace(node, offline=node.offline or k in places)
        for k, node in enumerate(cluster.nodes)
    )
    return dataclasses.replace(cluster, nodes=nodes)


def limits(parsed: Parsed) -> Limits:
    """Read the options that change what nodes accept."""
    return Limits(
        max_cpu=parsed.values.get("maxcpu"),
        min_disk=parsed.values.get("mindisk") or 0.0,
    )


def warn_inconsistent(state: State, parsed: Parsed) -> None:
    """Tell about memory and disk that no instance explains."""
    if parsed.verbosity < 1:
        return
    lines = []
    for n, node in enumerate(state.fixed.cluster.nodes):
        used = sum(
            state.fixed.cluster.instances[i].disk
            for i in (*state.primaries[n], *state.secondaries[n])
        )
        memory = int(state.fixed.missing_memory[n])
        disk = int(node.total_disk - state.amounts[Row.DISK, n] - used)
        if not node.offline and (memory > _MISSING_MEMORY or disk > _MISSING_DISK):
            lines.append(
                f"  - node {node.name} is missing {memory} MB ram"
                f" and {disk // _GIB} GB disk"
            )
    if lines:
        told = "\n".join(reversed(lines))
        sys.stderr.write(f"Warning: cluster has inconsistent data:\n{told}\n\n")


def save(parsed: Parsed, cluster: Cluster, suffix: str, what: str) -> None:
    """Save a state when asked to."""
    if parsed["S"] is None:
        return
    path = f"{parsed['S']}.{suffix}"
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text.dump(cluster))
    sys.stderr.write(f"The cluster state {what} has been written to file '{path}'\n")
