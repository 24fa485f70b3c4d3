"""Definitions that nodes have copies of, such as those of operating systems.

The master answers with uuid -> copies, the best first. A copy is a list whose first
values are its path, whether it is valid, and why not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.base.text import nicesort
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import jobs

Copies = Mapping[str, Sequence[Sequence[Any]]]


def query(ctx: CommandContext, op_id: str, fields: list[str]) -> list[dict[str, Any]]:
    """Return all definitions as field -> value, from a job with this opcode."""
    rows = jobs.run(ctx, jobs.op(op_id, output_fields=fields, names=[]))
    return [dict(zip(fields, row, strict=True)) for row in rows]


def print_named(
    ctx: CommandContext, by_name: Mapping[str, Any], names: Sequence[str]
) -> None:
    """Print the definitions of these names as JSON, null for an unknown name."""
    objects = [
        with_named_parameters(by_name[name]) if name in by_name else None
        for name in names
    ]
    listing.print_json(ctx, objects)


def with_named_parameters(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition with its parameters as name -> description."""
    return {**definition, "parameters": dict(definition["parameters"] or ())}


def with_named_copies(
    definition: Mapping[str, Any], names: Mapping[str, str], fields: Sequence[str]
) -> dict[str, Any]:
    """Return a definition with its copies by node name, and their values by field.

    Args:
        definition: has uuid -> copies as ``node_status``.
        names: uuid -> name of the nodes.
        fields: of a copy; one is ``parameters``.
    """
    nodes = {
        names.get(uuid, uuid): [
            with_named_parameters(dict(zip(fields, copy, strict=True)))
            for copy in copies
        ]
        for uuid, copies in definition["node_status"].items()
    }
    return {**definition, "node_status": nodes}


def validity(copy: Sequence[Any]) -> str:
    """Return ``valid``, or ``invalid`` with the reason."""
    return "valid" if copy[1] else f"invalid - {copy[2]}"


def lines_of_nodes(
    statuses: Copies,
    names: Mapping[str, str],
    describe: Callable[[Sequence[Any]], str],
    missing: str,
) -> tuple[list[str], list[str]]:
    """Return lines about nodes with a valid copy, and about the others, by name.

    Args:
        statuses: uuid -> copies.
        names: uuid -> name of the nodes.
        describe: returns the state of the copy that a node uses.
        missing: state of a node without a copy.
    """
    good: list[str] = []
    bad: list[str] = []
    for uuid in sorted(statuses, key=lambda u: nicesort.key(str(names.get(u, u)))):
        copies = statuses[uuid]
        status = describe(copies[0]) if copies else missing
        lines = good if copies and copies[0][1] else bad
        lines.append(f"  Node: {names.get(uuid, uuid)}, status: {status}")
        lines += [
            f"    [hidden] path: {copy[0]}, status: {validity(copy)}"
            for copy in copies[1:]
        ]
    return good, bad
