"""Command table of ``gnt-job``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Option, Program

COMMANDS: Final = (
    Command(
        "archive",
        "archive finished jobs",
        arguments=(Argument("jobid", minimum=1, maximum=None),),
        run="commands.job.archive:archive",
        exits=((0, "ok"), (1, "a job was not archived")),
    ),
    Command(
        "autoarchive",
        "archive jobs older than an age",
        arguments=(Argument("suggest", name="age", choices=("1d", "1w", "4w", "all")),),
        run="commands.job.archive:autoarchive",
        exits=((1, "malformed age"),),
    ),
    Command(
        "cancel",
        "cancel (or kill) jobs",
        arguments=(Argument("jobid", minimum=0, maximum=None),),
        options=(
            o.FORCE,
            Option(
                ("--kill",),
                "kill running jobs with SIGKILL; needs --yes-do-it",
                dest="kill",
            ),
            o.PENDING,
            o.QUEUED,
            o.WAITING,
            o.YES_DO_IT,
        ),
        run="commands.job.pending:cancel",
        exits=(
            (0, "ok"),
            (1, "a job failed, or not exactly one of ids and status option given"),
            (13, "declined"),
        ),
    ),
    Command(
        "change-priority",
        "change priority of queued jobs",
        arguments=(Argument("jobid", minimum=0, maximum=None),),
        options=(o.PRIORITY, o.FORCE, o.PENDING, o.QUEUED, o.WAITING),
        run="commands.job.pending:change_priority",
        exits=((0, "ok"), (1, "--priority missing, or failure"), (13, "declined")),
    ),
    Command(
        "info",
        "show job details",
        arguments=(Argument("jobid", minimum=1, maximum=None),),
        options=(o.JSON,),
        run="commands.job.info:run",
        aliases=("show",),
        exits=((0, "ok, even if an id is unknown"),),
    ),
    Command(
        "list",
        "list jobs",
        arguments=(Argument("jobid", minimum=0, maximum=None),),
        options=(
            o.FILTER,
            o.PENDING,
            Option(
                ("--running",),
                "only jobs in state running",
                dest="status_filter",
                kind="const",
                sets=("running",),
            ),
            Option(
                ("--error",),
                "only jobs in state error",
                dest="status_filter",
                kind="const",
                sets=("error",),
            ),
            Option(
                ("--finished",),
                "only jobs in a final state (success, error, canceled)",
                dest="status_filter",
                kind="const",
                sets=("canceled", "error", "success"),
            ),
            Option(
                ("--archived",),
                "also show archived jobs, and add the field 'archived' (slow)",
                dest="archived",
            ),
            *o.TABLE,
            *o.QUERY,
            o.JSON,
        ),
        run="commands.job.listing:list_objects",
        fields=("id", "status", "summary"),
        exits=((14, "unknown field"),),
    ),
    Command(
        "list-fields",
        "list available job fields",
        arguments=(Argument("unknown", name="field", minimum=0, maximum=None),),
        options=(*o.TABLE, o.JSON),
        run="commands.job.listing:list_fields",
        exits=((14, "unknown field"),),
    ),
    Command(
        "wait",
        "wait for a job without output",
        arguments=(Argument("jobid"),),
        run="commands.job.watch:wait",
        exits=((0, "success"), (1, "the job failed, was canceled or is lost")),
    ),
    Command(
        "watch",
        "follow a job and print its messages",
        arguments=(Argument("jobid"),),
        run="commands.job.watch:watch",
        exits=((0, "success"), (1, "the job failed, was canceled or is lost")),
    ),
)

PROGRAM: Final = Program(
    "gnt-job", "Job queue administration", COMMANDS, tag_kind=None, list_defaults=""
)
