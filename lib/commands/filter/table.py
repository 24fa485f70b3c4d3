"""Command table of ``gnt-filter``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli import rows
from ganeti.commands.cli.model import Argument, Command, Program

COMMANDS: Final = (
    Command(
        "add",
        "create a job filter rule",
        options=(o.RULE_PRIORITY, o.PREDICATES, o.ACTION),
        run="commands.filter.rules:add",
    ),
    Command(
        "delete",
        "delete a rule",
        arguments=(Argument("filter"),),
        run="commands.filter.rules:delete",
        exits=((1, "unknown UUID"),),
    ),
    Command(
        "info",
        "show rules",
        arguments=(Argument("filter", minimum=0, maximum=None),),
        options=(o.JSON,),
        run="commands.filter.rules:info",
    ),
    rows.list_objects(
        "filter",
        "list rules",
        run="commands.filter.rules:list_objects",
        fields=(
            "uuid",
            "watermark",
            "priority",
            "predicates",
            "action",
            "reason_trail",
        ),
    ),
    rows.list_fields("filter"),
    Command(
        "replace",
        "replace or create a rule with a given UUID",
        arguments=(Argument("filter"),),
        options=(o.RULE_PRIORITY, o.PREDICATES, o.ACTION),
        run="commands.filter.rules:replace",
    ),
)

PROGRAM: Final = Program("gnt-filter", "Job filter rules", COMMANDS)
