"""Command table of ``gnt-backup``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Option, Program

COMMANDS: Final = (
    Command(
        "export",
        "export an instance to a node",
        arguments=(Argument("instance"),),
        options=(
            o.without_effect(o.FORCE, "nothing is asked"),
            o.OTHER_NODE,
            Option(
                ("--transport-compression",),
                "compression tool for the copy between nodes",
                dest="transport_compression",
                kind="string",
                default="none",
            ),
            Option(
                ("--noshutdown",),
                "do not stop the instance for the snapshots of its disks",
                dest="shutdown",
                sets=False,
                default=True,
            ),
            o.SHUTDOWN_TIMEOUT,
            Option(
                ("--remove-instance",),
                "remove the instance after the export",
                dest="remove_instance",
            ),
            Option(
                ("--ignore-remove-failures",),
                "remove the instance even if not all of its disks can be removed",
                dest="ignore_remove_failures",
            ),
            o.DRY_RUN,
            Option(
                ("--zero-free-space",),
                "zero unused disk space before the export",
                dest="zero_free_space",
            ),
            Option(
                ("--zeroing-timeout-fixed",),
                "fixed part of the time limit for the zeroing in seconds",
                dest="zeroing_timeout_fixed",
                kind="int",
            ),
            Option(
                ("--zeroing-timeout-per-mib",),
                "seconds per MiB that are added to this time limit",
                dest="zeroing_timeout_per_mib",
                kind="float",
            ),
            Option(
                ("--long-sleep",),
                "keep the instance stopped during the copy if its disks have no"
                " snapshots",
                dest="long_sleep",
            ),
            *o.JOB,
        ),
        run="commands.backup.export:run",
        opcodes=("OP_BACKUP_EXPORT",),
        exits=((1, "no target node, or failure"),),
    ),
    Command(
        "import",
        "create an instance from an export",
        arguments=(Argument("instance"),),
        options=(
            *o.NEW_INSTANCE,
            Option(
                ("--identify-defaults",),
                "do not store parameters that are equal to the cluster's defaults",
                dest="identify_defaults",
            ),
            Option(
                ("--src-node",),
                "node with the export; all are searched by default",
                dest="src_node",
                kind="string",
            ),
            Option(
                ("--src-dir",),
                "directory or name of the export; the instance's name by default",
                dest="src_dir",
                kind="string",
            ),
            Option(
                ("--compress",),
                "compression tool for the copy between nodes",
                dest="compress",
                kind="string",
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
            Option(
                ("-n", "--node"),
                "only exports on this node; may be repeated",
                dest="nodes",
                kind="string",
                repeat=True,
                default=[],
            ),
            o.UNITS,
            *o.TABLE,
            *o.QUERY,
            o.JSON,
        ),
        run="commands.backup.listing:list_objects",
        fields=("node", "export"),
        exits=((14, "unknown field"),),
    ),
    Command(
        "list-fields",
        "list available export fields",
        arguments=(Argument("unknown", name="field", minimum=0, maximum=None),),
        options=(*o.TABLE, o.JSON),
        run="commands.backup.listing:list_fields",
        exits=((14, "unknown field"),),
    ),
    Command(
        "remove",
        "delete the exports of an instance",
        arguments=(Argument("unknown", name="export"),),
        options=(o.DRY_RUN, *o.JOB),
        run="commands.backup.remove:run",
        opcodes=("OP_BACKUP_REMOVE",),
    ),
)

PROGRAM: Final = Program(
    "gnt-backup", "Exports of instances", COMMANDS, tag_kind=None, list_defaults=""
)
