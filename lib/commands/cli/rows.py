"""Rows of commands that several programs have."""

from typing import Final

from ganeti.commands.cli import options as shared
from ganeti.commands.cli.model import Argument, Command, Option

_TAGS: Final = Argument("unknown", 0, None, name="tag", fields=("tags",))


def tag_commands(*named: Argument) -> tuple[Command, ...]:
    """Return the rows of the tag commands; see `ganeti.commands.cli.tags`.

    Args:
        named: the argument with the object; none for the cluster.
    """
    changing = (shared.FROM, *shared.JOB)
    changed = tuple(row._replace(fields=("name",)) for row in named)
    return (
        Command(
            "add-tags",
            "add tags",
            arguments=(*changed, _TAGS),
            options=changing,
            run="commands.cli.tags:change_tags",
            opcodes=("OP_TAGS_SET",),
            exits=((1, "no tags given or failure"),),
        ),
        Command(
            "list-tags",
            "list tags, one per line, sorted",
            arguments=named,
            options=(shared.JSON,),
            run="commands.cli.tags:list_tags",
        ),
        Command(
            "remove-tags",
            "remove tags",
            arguments=(*changed, _TAGS),
            options=changing,
            run="commands.cli.tags:change_tags",
            opcodes=("OP_TAGS_DEL",),
            exits=((1, "no tags given, unknown tag or failure"),),
        ),
    )


def list_objects(
    kind: str,
    text: str,
    *,
    run: str,
    fields: tuple[str, ...],
    options: tuple[Option, ...] = (),
) -> Command:
    """Return the row of ``list``.

    Args:
        kind: of the objects, which arguments may name.
        text: summary of the command.
        run: its function.
        fields: columns without ``-o``.
        options: beside those of every list.
    """
    return Command(
        "list",
        text,
        arguments=(Argument(kind, minimum=0, maximum=None),),
        options=(*options, *shared.TABLE, *shared.QUERY, shared.JSON),
        run=run,
        fields=fields,
        exits=((14, "unknown field"),),
    )


def list_fields(resource: str) -> Command:
    """Return the row of ``list-fields`` of a resource of queries."""
    return Command(
        "list-fields",
        f"list available {resource} fields",
        arguments=(Argument("unknown", name="field", minimum=0, maximum=None),),
        options=(*shared.TABLE, shared.JSON),
        run="commands.cli.output.listing:list_fields",
        exits=((14, "unknown field"),),
        resource=resource,
    )
