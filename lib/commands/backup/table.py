"""Command table of ``gnt-backup``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli import rows
from ganeti.commands.cli.model import Argument, Command, Program, option

COMMANDS: Final = (
    Command(
        "export",
        "export an instance to a node",
        arguments=(Argument("instance"),),
        options=(
            o.without_effect(o.NO_QUESTION, "nothing is asked"),
            o.OTHER_NODE,
            option(
                "--transport-compression",
                "compression tool for the copy between nodes",
                "string",
                default="none",
                field="compress",
            ),
            option(
                "--noshutdown",
                "do not stop the instance for the snapshots of its disks",
                clears="shutdown",
            ),
            o.SHUTDOWN_TIMEOUT,
            option("--remove-instance", "remove the instance after the export"),
            option(
                "--ignore-remove-failures",
                "remove the instance even if not all of its disks can be removed",
            ),
            o.DRY_RUN,
            option("--zero-free-space", "zero unused disk space before the export"),
            option(
                "--zeroing-timeout-fixed",
                "fixed part of the time limit for the zeroing in seconds",
                "int",
            ),
            option(
                "--zeroing-timeout-per-mib",
                "seconds per MiB that are added to this time limit",
                "float",
            ),
            option(
                "--long-sleep",
                "keep the instance stopped during the copy if its disks have no"
                " snapshots",
            ),
            *o.JOB,
        ),
        opcodes=("OP_BACKUP_EXPORT",),
        requires=(("node", "export: the target node is missing (-n)"),),
        exits=((1, "no target node, or failure"),),
    ),
    Command(
        "import",
        "create an instance from an export",
        arguments=(Argument("instance"),),
        options=(
            *o.NEW_INSTANCE,
            option(
                "--identify-defaults",
                "do not store parameters that are equal to the cluster's defaults",
            ),
            option(
                "--src-node",
                "node with the export; all are searched by default",
                "string",
            ),
            option(
                "--src-dir",
                "directory or name of the export; the instance's name by default",
                "string",
                field="src_path",
            ),
            option(
                "--compress",
                "compression tool for the copy between nodes",
                "string",
                default="none",
            ),
            o.IGNORE_IPOLICY,
            *o.IMPORT_HELPER_TIMES,
            *o.JOB,
        ),
        run="commands.backup.restore:run",
        opcodes=("OP_INSTANCE_CREATE",),
        exits=((1, "wrong options, or failure"),),
    ),
    Command(
        "list",
        "list exports",
        options=(
            option(
                "-n --node",
                "only exports on this node; may be repeated",
                "string",
                dest="nodes",
                default=[],
                repeat=True,
            ),
            o.UNITS,
            *o.TABLE,
            *o.QUERY,
            o.JSON,
        ),
        run="commands.lists:exports",
        fields=("node", "export"),
        exits=((14, "unknown field"),),
    ),
    rows.list_fields("export"),
    Command(
        "remove",
        "delete the exports of an instance",
        arguments=(Argument("unknown", name="export", fields=("instance_name",)),),
        options=(o.DRY_RUN, *o.JOB),
        opcodes=("OP_BACKUP_REMOVE",),
    ),
)

PROGRAM: Final = Program("gnt-backup", "Exports of instances", COMMANDS)
