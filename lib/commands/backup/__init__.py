"""The program ``gnt-backup``: `table` lists its commands; each has a module."""


def main() -> int:
    """Run the program with the arguments of this process; return the exit code."""
    from ganeti.commands.backup.table import PROGRAM
    from ganeti.commands.cli import app

    return app.main(PROGRAM)
