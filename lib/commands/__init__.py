"""The gnt-* commands and the placement programs: parse, ask, submit, show.

One package per program, with a table of its commands, and modules for those that do
more than submit an opcode; `cli` has what they share. The operations themselves belong
to the master daemon.
"""

import importlib


def main(package: str) -> int:
    """Run a program with the arguments of this process; return the exit code.

    Args:
        package: of the program, such as ``rapi_token``.
    """
    from ganeti.commands.cli import app

    return app.main(importlib.import_module(f"{__name__}.{package}.table").PROGRAM)
