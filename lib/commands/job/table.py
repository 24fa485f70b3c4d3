"""Command table of ``gnt-job``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli import rows
from ganeti.commands.cli.model import Argument, Command, Program, option

COMMANDS: Final = (
    Command(
        "archive",
        "archive finished jobs",
        arguments=(Argument("jobid", maximum=None),),
        run="commands.job.commands:archive",
        exits=((0, "ok"), (1, "a job was not archived")),
    ),
    Command(
        "autoarchive",
        "archive jobs older than an age",
        arguments=(Argument("suggest", name="age", choices=("1d", "1w", "4w", "all")),),
        run="commands.job.commands:autoarchive",
        exits=((1, "malformed age"),),
    ),
    Command(
        "cancel",
        "cancel (or kill) jobs",
        arguments=(Argument("jobid", minimum=0, maximum=None),),
        options=(
            o.FORCE,
            option("--kill", "kill running jobs with SIGKILL; needs --yes-do-it"),
            o.PENDING,
            o.QUEUED,
            o.WAITING,
            o.YES_DO_IT,
        ),
        run="commands.job.commands:cancel",
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
        run="commands.job.commands:change_priority",
        exits=((0, "ok"), (1, "--priority missing, or failure"), (13, "declined")),
    ),
    Command(
        "info",
        "show job details",
        arguments=(Argument("jobid", maximum=None),),
        options=(o.JSON,),
        run="commands.job.commands:info",
        aliases=("show",),
        exits=((0, "ok, even if an id is unknown"),),
    ),
    rows.list_objects(
        "jobid",
        "list jobs",
        options=(
            o.FILTER,
            o.PENDING,
            option(
                "--running",
                "only jobs in state running",
                "const",
                dest="status_filter",
                sets=("running",),
            ),
            option(
                "--error",
                "only jobs in state error",
                "const",
                dest="status_filter",
                sets=("error",),
            ),
            option(
                "--finished",
                "only jobs in a final state (success, error, canceled)",
                "const",
                dest="status_filter",
                sets=("canceled", "error", "success"),
            ),
            option(
                "--archived",
                "also show archived jobs, and add the field 'archived' (slow)",
            ),
        ),
        run="commands.lists:jobs",
        fields=("id", "status", "summary"),
    ),
    rows.list_fields("job"),
    Command(
        "wait",
        "wait for a job without output",
        arguments=(Argument("jobid"),),
        run="commands.job.commands:wait",
        exits=((0, "success"), (1, "the job failed, was canceled or is lost")),
    ),
    Command(
        "watch",
        "follow a job and print its messages",
        arguments=(Argument("jobid"),),
        run="commands.job.commands:watch",
        exits=((0, "success"), (1, "the job failed, was canceled or is lost")),
    ),
)

PROGRAM: Final = Program("gnt-job", "Job queue administration", COMMANDS)
