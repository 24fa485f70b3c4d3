"""Examples of ``gnt-job`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "list": (
        Example("gnt-job list", "all jobs that are not archived"),
        Example("gnt-job list --running", "jobs that run now"),
        Example(
            "gnt-job list --error -o id,summary,opresult",
            "failed jobs with their errors",
        ),
        Example(
            "gnt-job list --pending 12 13", "those of two jobs that have not started"
        ),
    ),
    "info": (Example("gnt-job info 12", "opcodes, results, messages, times"),),
    "watch": (Example("gnt-job watch 12", "print its messages until it ends"),),
    "wait": (Example("gnt-job wait 12", "wait for a job in scripts, after --submit"),),
    "cancel": (
        Example("gnt-job cancel 12 13", "cancel jobs that have not begun"),
        Example("gnt-job cancel -f --queued", "cancel all jobs that wait in the queue"),
        Example(
            "gnt-job cancel --kill --yes-do-it 12",
            "kill a running job; its changes so far remain",
        ),
    ),
    "change-priority": (
        Example(
            "gnt-job change-priority --priority high 14", "run a job before others"
        ),
    ),
    "archive": (Example("gnt-job archive 12", "archive a finished job"),),
    "autoarchive": (
        Example(
            "gnt-job autoarchive 1d", "archive all jobs that ended more than a day ago"
        ),
    ),
}
