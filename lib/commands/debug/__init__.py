"""The program ``gnt-debug``: `table` lists its commands; each has a module."""


def main() -> int:
    """Run the program with the arguments of this process; return the exit code."""
    from ganeti.commands.cli import app
    from ganeti.commands.debug.table import PROGRAM

    return app.main(PROGRAM)
