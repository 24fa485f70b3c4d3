"""Command table of ``gnt-group``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli import rows
from ganeti.commands.cli.model import Argument, Command, Program, option

COMMANDS: Final = (
    Command(
        "add",
        "create a node group",
        arguments=(Argument("group"),),
        options=(
            o.DRY_RUN,
            o.ALLOC_POLICY,
            o.NODE_PARAMETERS,
            o.DISK_PARAMETERS,
            *o.JOB,
            *o.IPOLICY,
            *o.STATE,
        ),
        run="commands.group.commands:add",
        opcodes=("OP_GROUP_ADD",),
    ),
    *rows.tag_commands(Argument("group")),
    Command(
        "assign-nodes",
        "move nodes into a group",
        arguments=(
            Argument("group"),
            Argument("node", minimum=0, maximum=None, fields=("nodes",)),
        ),
        options=(o.DRY_RUN, o.FORCE, *o.JOB),
        opcodes=("OP_GROUP_ASSIGN_NODES",),
    ),
    Command(
        "evacuate",
        "move all instances out of a group",
        arguments=(Argument("group"),),
        options=(
            o.TO,
            o.IALLOCATOR,
            o.EARLY_RELEASE,
            option("--sequential", "run the jobs one after another"),
            option("--force-failover", "never migrate, always fail over"),
            o.DRY_RUN,
            o.EXPLAIN,
            o.SUBMIT,
            o.PRINT_JOBID,
            *o.PLANNED,
        ),
        opcodes=("OP_GROUP_EVACUATE",),
        reports=(
            "All instances evacuated successfully.",
            "There were {} errors during the evacuation.",
        ),
        exits=((1, "a job failed"),),
    ),
    Command(
        "info",
        "show group details",
        arguments=(Argument("group", minimum=0, maximum=None),),
        options=(o.JSON,),
        run="commands.group.commands:info",
    ),
    rows.list_objects(
        "group",
        "list groups",
        options=(o.FILTER,),
        run="commands.lists:groups",
        fields=("name", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams"),
    ),
    rows.list_fields("group"),
    Command(
        "modify",
        "change a group",
        arguments=(Argument("group"),),
        options=(
            o.DRY_RUN,
            o.ALLOC_POLICY,
            o.NODE_PARAMETERS,
            o.DISK_PARAMETERS,
            *o.JOB,
            *o.IPOLICY,
            *o.STATE,
        ),
        run="commands.group.commands:modify",
        opcodes=("OP_GROUP_SET_PARAMS",),
        changes="node group",
    ),
    Command(
        "remove",
        "remove an empty group",
        arguments=(Argument("group", maximum=None),),
        options=(o.DRY_RUN, *o.JOB),
        opcodes=("OP_GROUP_REMOVE",),
    ),
    Command(
        "rename",
        "rename a group",
        arguments=(
            Argument("group", minimum=2, maximum=2, fields=("group_name", "new_name")),
        ),
        options=(o.DRY_RUN, *o.JOB),
        opcodes=("OP_GROUP_RENAME",),
    ),
    Command(
        "show-ispecs-cmd",
        "print an add command line with the group's spec policy",
        arguments=(Argument("group", minimum=0, maximum=None),),
        options=(option("--include-defaults", "also print inherited values"),),
        run="commands.cli.ipolicy:show_groups",
    ),
)

PROGRAM: Final = Program(
    "gnt-group",
    "Node group administration",
    COMMANDS,
    tag_kind="nodegroup",
    list_defaults="GNT_GROUP_LIST",
)
