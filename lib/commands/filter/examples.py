"""Examples of ``gnt-filter`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "add": (
        Example(
            "gnt-filter add --action PAUSE --priority 0 --reason maintenance",
            "start no more jobs",
        ),
        Example(
            (
                'gnt-filter add --action REJECT --predicates \'[["opcode", ["=", '
                '"OP_ID", "OP_INSTANCE_CREATE"]]]\''
            ),
            "refuse jobs that create instances",
        ),
        Example(
            (
                "gnt-filter add --action 'RATE_LIMIT 2' --predicates '[[\"opcode\", "
                '["=", "OP_ID", "OP_INSTANCE_MIGRATE"]]]\''
            ),
            "run at most two migrations at a time",
        ),
    ),
    "list": (
        Example("gnt-filter list", "all rules"),
        Example(
            "gnt-filter list --json -o predicates,action",
            "predicates in the form that the command add accepts",
        ),
    ),
    "info": (Example("gnt-filter info", "all rules, one value per line"),),
    "delete": (
        Example(
            "gnt-filter delete 8b53f7de-f8e2-4470-99bd-1efe746e434f", "delete a rule"
        ),
    ),
    "replace": (
        Example(
            (
                "gnt-filter replace --priority 5 --action ACCEPT "
                "8b53f7de-f8e2-4470-99bd-1efe746e434f"
            ),
            "replace a rule under the same UUID",
        ),
    ),
}
