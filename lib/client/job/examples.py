"""Examples of ``gnt-job`` for its help and its manual page."""

from typing import Final

from ganeti.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "list": (
        Example("gnt-job list", "all jobs that are not archived"),
        Example("gnt-job list --running", "what goes on now"),
        Example("gnt-job list --error -o id,summary,opresult", "what failed and why"),
        Example(
            "gnt-job list --pending 12 13", "of these, those that have not started"
        ),
    ),
    "info": (Example("gnt-job info 12", "opcodes, results, messages, times"),),
    "watch": (Example("gnt-job watch 12", "follow it"),),
    "wait": (Example("gnt-job wait 12", "in scripts, after --submit"),),
    "cancel": (
        Example("gnt-job cancel 12 13", "stop jobs that have not begun"),
        Example("gnt-job cancel -f --queued", "all that wait in the queue"),
        Example(
            "gnt-job cancel --kill --yes-do-it 12",
            "one that runs; what it did stays done",
        ),
    ),
    "change-priority": (
        Example("gnt-job change-priority --priority high 14", "let it pass others"),
    ),
    "archive": (Example("gnt-job archive 12", "put a finished job away"),),
    "autoarchive": (
        Example("gnt-job autoarchive 1d", "all that ended a day ago or earlier"),
    ),
}
