"""Command table of ``gnt-group``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Option, Program

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
        run="commands.group.add:run",
        opcodes=("OP_GROUP_ADD",),
    ),
    Command(
        "add-tags",
        "add tags",
        arguments=(
            Argument("group"),
            Argument("unknown", name="tag", minimum=0, maximum=None),
        ),
        options=(o.FROM, *o.JOB),
        run="commands.cli.tags:add_tags",
        opcodes=("OP_TAGS_SET",),
        exits=((1, "no tags given or failure"),),
    ),
    Command(
        "assign-nodes",
        "move nodes into a group",
        arguments=(Argument("group"), Argument("node", minimum=0, maximum=None)),
        options=(o.DRY_RUN, o.FORCE, *o.JOB),
        run="commands.group.assign_nodes:run",
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
            Option(
                ("--sequential",),
                "run the jobs one after another",
                dest="sequential",
            ),
            Option(
                ("--force-failover",),
                "never migrate, always fail over",
                dest="force_failover",
            ),
            o.DRY_RUN,
            o.EXPLAIN,
            o.SUBMIT,
            o.PRINT_JOBID,
            *o.PLANNED,
        ),
        run="commands.group.evacuate:run",
        opcodes=("OP_GROUP_EVACUATE",),
        exits=((1, "a job failed"),),
    ),
    Command(
        "info",
        "show group details",
        arguments=(Argument("group", minimum=0, maximum=None),),
        options=(o.JSON,),
        run="commands.group.info:run",
    ),
    Command(
        "list",
        "list groups",
        arguments=(Argument("group", minimum=0, maximum=None),),
        options=(o.FILTER, *o.TABLE, *o.QUERY, o.JSON),
        run="commands.group.listing:list_objects",
        fields=("name", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams"),
        exits=((14, "unknown field"),),
    ),
    Command(
        "list-fields",
        "list available group fields",
        arguments=(Argument("unknown", name="field", minimum=0, maximum=None),),
        options=(*o.TABLE, o.JSON),
        run="commands.group.listing:list_fields",
        exits=((14, "unknown field"),),
    ),
    Command(
        "list-tags",
        "list tags, one per line, sorted",
        arguments=(Argument("group"),),
        options=(o.JSON,),
        run="commands.cli.tags:list_tags",
    ),
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
        run="commands.group.modify:run",
        opcodes=("OP_GROUP_SET_PARAMS",),
    ),
    Command(
        "remove",
        "remove an empty group",
        arguments=(Argument("group", maximum=None),),
        options=(o.DRY_RUN, *o.JOB),
        run="commands.group.remove:run",
        opcodes=("OP_GROUP_REMOVE",),
    ),
    Command(
        "remove-tags",
        "remove tags",
        arguments=(
            Argument("group"),
            Argument("unknown", name="tag", minimum=0, maximum=None),
        ),
        options=(o.FROM, *o.JOB),
        run="commands.cli.tags:remove_tags",
        opcodes=("OP_TAGS_DEL",),
        exits=((1, "no tags given, unknown tag or failure"),),
    ),
    Command(
        "rename",
        "rename a group",
        arguments=(Argument("group", minimum=2, maximum=2),),
        options=(o.DRY_RUN, *o.JOB),
        run="commands.group.rename:run",
        opcodes=("OP_GROUP_RENAME",),
    ),
    Command(
        "show-ispecs-cmd",
        "print an add command line with the group's spec policy",
        arguments=(Argument("group", minimum=0, maximum=None),),
        options=(
            Option(
                ("--include-defaults",),
                "also print inherited values",
                dest="include_defaults",
            ),
        ),
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
