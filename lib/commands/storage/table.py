"""Command table of ``gnt-storage``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Program

COMMANDS: Final = (
    Command(
        "diagnose",
        "show validity of external storage providers",
        options=(o.PRIORITY, o.JSON),
        run="commands.storage.commands:diagnose",
        opcodes=("OP_EXT_STORAGE_DIAGNOSE",),
        exits=((0, "ok"), (1, "no provider found")),
    ),
    Command(
        "info",
        "show external storage providers",
        arguments=(Argument("extstorage", minimum=0, maximum=None),),
        options=(o.PRIORITY, o.JSON),
        run="commands.storage.commands:info",
        opcodes=("OP_EXT_STORAGE_DIAGNOSE",),
    ),
)

PROGRAM: Final = Program("gnt-storage", "External storage providers", COMMANDS)
