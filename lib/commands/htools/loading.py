"""Common steps of placement programs: options, loading the cluster, saving states.

``sources`` reads the cluster; options that change the loaded cluster are applied here.
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ganeti.base import errors
from ganeti.commands.htools import option_table, options, output, sources, utilisation
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.model.cluster import Cluster, DataError, Instance, lookup
from ganeti.decisions.htools.state.node_state import CapacityLimits

if TYPE_CHECKING:
    from ganeti.decisions.htools.balance import greedy
    from ganeti.decisions.htools.rules.move_constraints import MoveOptions

#: Memory (MiB) that may be missing on a node without a warning.
_MISSING_MEMORY = 512
#: Disk (MiB) that may be missing on a node without a warning.
_MISSING_DISK = 1024
_GIB = 1024


class ProgramError(Exception):
    """Error that ends a program with exit code 1."""


def main(
    program: str,
    work: Callable[[ParsedOptions], int],
    words: list[str],
    *,
    arguments: str = "",
) -> int:
    """Run a program and return its exit code.

    Args:
        program: name of the program.
        work: the program's function; returns the exit code.
        words: the command line without the program.
        arguments: shell completion of arguments; empty if there are none.
    """
    known = option_table.options_of(option_table.PROGRAMS[program].split())
    try:
        parsed = options.parse(words, known)
    except options.UsageError as err:
        message = f"Command line error: {err}\n\n{options.usage(program, known)}\n"
        sys.stderr.write(message)
        return 2
    except options.OptionValueError as err:
        message = f"Error while parsing command line arguments:\n{err}\n"
        sys.stderr.write(message)
        return 1
    shown: dict[str, Callable[[], str]] = {
        "help": lambda: options.usage(program, known),
        "version": lambda: options.version(program),
        "completion": lambda: options.completion(known, arguments),
    }
    for key, text in shown.items():
        if parsed[key]:
            print(text())
            return 0
    if parsed.arguments and not arguments:
        sys.stderr.write("Error: This program doesn't take any arguments.\n")
        return 1
    return _guarded(work, parsed)


def _guarded(work: Callable[[ParsedOptions], int], parsed: ParsedOptions) -> int:
    """Run the program's function; print errors as messages."""
    try:
        # An offline node has no resources, so fractions of them are not numbers.
        with np.errstate(divide="ignore", invalid="ignore"):
            return work(parsed)
    except BrokenPipeError:
        # The reader of the output has closed the pipe: avoid another flush to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ProgramError, DataError, OSError, errors.GenericError) as err:
        sys.stdout.flush()
        sys.stderr.write(f"Error: {sources.reason(err)}\n")
        return 1


def load(parsed: ParsedOptions, *, given: Cluster | None = None) -> Cluster:
    """Load the cluster that the options select, and apply the options to it.

    Groups without nodes are left out, because nothing can be done there.

    Args:
        parsed: the options.
        given: the cluster to change; replaces the source.
    """
    try:
        cluster = given or sources.read(parsed).without_empty_groups()
        cluster = utilisation.apply(cluster, parsed)
        cluster = _movable(cluster, parsed)
    except sources.SeveralSourcesError as err:
        raise ProgramError(str(err)) from err
    except (DataError, OSError, errors.GenericError) as err:
        message = f"failed to load data, aborting: {sources.reason(err)}"
        raise ProgramError(message) from err
    if parsed.verbosity > 0:
        _warn_inconsistent(cluster)
    return _offline(cluster, parsed.get("O") or ())


def _movable(cluster: Cluster, parsed: ParsedOptions) -> Cluster:
    """Mark instances that may not move: by template, options, or split nodes."""
    chosen = _instances(cluster, parsed.get("sel") or ())
    excluded = _instances(cluster, parsed.get("exi") or ())
    fixed = set(cluster.split()) | excluded

    def may(index: int, inst: Instance) -> bool:
        selected = not chosen or index in chosen
        return inst.movable and selected and index not in fixed

    instances = tuple(
        msgspec.structs.replace(inst, movable=may(k, inst))
        for k, inst in enumerate(cluster.instances)
    )
    return msgspec.structs.replace(cluster, instances=instances)


def _instances(cluster: Cluster, wanted: Iterable[str]) -> set[int]:
    names = [inst.name for inst in cluster.instances]
    positions = {name: lookup(names, name) for name in wanted}
    unknown = [f'"{name}"' for name, place in positions.items() if place is None]
    if unknown:
        raise DataError(f"Unknown instance(s): [{','.join(unknown)}]")
    return {place for place in positions.values() if place is not None}


def _offline(cluster: Cluster, wanted: Iterable[str]) -> Cluster:
    names = [node.name for node in cluster.nodes]
    positions = {name: lookup(names, name) for name in wanted}
    unknown = [name for name, place in positions.items() if place is None]
    if unknown:
        raise ProgramError(f"wrong node name(s) set as offline: {','.join(unknown)}\n")
    places = set(positions.values())
    nodes = tuple(
        msgspec.structs.replace(node, offline=node.offline or k in places)
        for k, node in enumerate(cluster.nodes)
    )
    return msgspec.structs.replace(cluster, nodes=nodes)


def limits(parsed: ParsedOptions) -> CapacityLimits:
    """Return the options that limit nodes."""
    return CapacityLimits(
        max_cpu=parsed.get("maxcpu"),
        min_disk=parsed.get("mindisk") or 0.0,
    )


def goal(parsed: ParsedOptions) -> "greedy.BalanceGoal":
    """Return the options that end a plan."""
    from ganeti.decisions.htools.balance import greedy

    return greedy.BalanceGoal(
        min_score=parsed["e"],
        min_gain=parsed["g"],
        min_gain_limit=parsed["mgl"],
        max_length=parsed["l"],
        avoid_disk_moves=parsed.get("adm"),
        pairs=bool(parsed.get("search")),
    )


def moves(parsed: ParsedOptions) -> "MoveOptions":
    """Return the options that limit the moves of a plan."""
    from ganeti.decisions.htools.rules.move_constraints import MoveOptions

    return MoveOptions(
        disk_moves=not parsed["ndm"],
        instance_moves=not parsed["nim"],
        restricted=bool(parsed.get("rm")),
        force=bool(parsed["ise"]),
        evacuate=bool(parsed["E"]),
    )


def _warn_inconsistent(cluster: Cluster) -> None:
    """Warn about memory and disk in use that belong to no instance."""
    used = [0] * len(cluster.nodes)
    disks = [0] * len(cluster.nodes)
    for inst in cluster.instances:
        if inst.uses_memory:
            used[inst.primary] += inst.memory
        for place in inst.nodes if not inst.forthcoming else ():
            disks[place] += inst.disk
    lines = []
    for n, node in enumerate(cluster.nodes):
        known = int(node.total_memory) - node.node_memory - used[n]
        memory = known - node.free_memory
        disk = int(node.total_disk) - node.free_disk - disks[n]
        if memory > _MISSING_MEMORY or disk > _MISSING_DISK:
            lines.append(
                f"  - node {node.name} is missing {memory} MB ram"
                f" and {disk // _GIB} GB disk"
            )
    if lines:
        message = "\n".join(reversed(lines))
        sys.stderr.write(f"Warning: cluster has inconsistent data:\n{message}\n\n")


def save(parsed: ParsedOptions, cluster: Cluster, suffix: str, what: str) -> None:
    """Save a state if option -S is given."""
    if parsed["S"] is None:
        return
    from ganeti.decisions.htools.model import text

    path = f"{parsed['S']}.{suffix}"
    output.save_text(path, text.dump(cluster))
    sys.stderr.write(f"The cluster state {what} has been written to file '{path}'\n")
