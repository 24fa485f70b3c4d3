"""The program ``gnt-rapi-token``: `table` lists its commands, one module for all."""


def main() -> int:
    """Run the program with the arguments of this process; return the exit code."""
    from ganeti.commands.cli import app
    from ganeti.commands.rapi_token.table import PROGRAM

    return app.main(PROGRAM)
