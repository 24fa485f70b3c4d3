"""Command table of ``gnt-os``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Program, option

COMMANDS: Final = (
    Command(
        "diagnose",
        "show OS validity on every node",
        options=(o.PRIORITY, o.JSON),
        run="commands.os.commands:diagnose",
        opcodes=("OP_OS_DIAGNOSE",),
        exits=((0, "all valid"), (1, "an OS is invalid or partially valid")),
    ),
    Command(
        "info",
        "show OS details",
        arguments=(Argument("os", minimum=0, maximum=None),),
        options=(o.PRIORITY, o.JSON),
        run="commands.os.commands:info",
        opcodes=("OP_OS_DIAGNOSE",),
        aliases=("show",),
    ),
    Command(
        "list",
        "list usable OS names including variants",
        options=(o.NO_HEADERS, o.PRIORITY, o.JSON),
        run="commands.os.commands:list_names",
        opcodes=("OP_OS_DIAGNOSE",),
        fields=("name",),
    ),
    Command(
        "modify",
        "change OS level parameters",
        arguments=(Argument("os"),),
        options=(
            o.HYPERVISOR_PARAMETERS,
            o.OS_PARAMETERS,
            o.OS_PARAMETERS_PRIVATE,
            o.DRY_RUN,
            option("--hidden", "set the hidden flag of the OS", "bool"),
            option("--blacklisted", "set the blacklisted flag of the OS", "bool"),
            *o.JOB,
        ),
        run="commands.os.commands:modify",
        opcodes=("OP_CLUSTER_SET_PARAMS",),
        exits=((1, "nothing to change"),),
    ),
)

PROGRAM: Final = Program("gnt-os", "Operating system definitions", COMMANDS)
