"""Command table of ``gnt-rapi-token``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Program, option

_RIGHTS: Final = option(
    "--rights",
    "options of the user, with commas between them: read, write, root, RIGHT:PATTERN"
    " or @ROLE",
    "string",
)
_REPLACE: Final = option("--replace", "replace the user or token of this name")
_NO_COPIES: Final = option(
    "--no-redist", "do not copy the file to the other master candidates"
)

COMMANDS: Final = (
    Command(
        "add",
        "create a bearer token and print it once",
        arguments=(Argument("user", name="name"),),
        options=(
            _RIGHTS,
            option(
                "--expires",
                "the token is valid for this long, such as 12h or 90d, or 'never'",
                "string",
                default="365d",
            ),
            _REPLACE,
            _NO_COPIES,
        ),
        run="commands.rapi_token.tokens:add",
        exits=((1, "the name is in use, or a right is unknown"),),
    ),
    Command(
        "list",
        "list users, tokens and roles",
        options=(*o.TABLE, o.JSON),
        run="commands.rapi_token.tokens:list_users",
    ),
    Command(
        "password",
        "create a user with a password, or change the password",
        arguments=(Argument("user", name="name"),),
        options=(_RIGHTS, _NO_COPIES),
        run="commands.rapi_token.tokens:set_password",
        exits=((1, "no password was given, or a right is unknown"),),
    ),
    Command(
        "remove",
        "remove users and tokens",
        arguments=(Argument("user", minimum=0, maximum=None, name="name"),),
        options=(
            option("--expired", "remove all tokens that have expired"),
            _NO_COPIES,
        ),
        run="commands.rapi_token.tokens:remove",
        exits=((1, "a name is unknown"),),
    ),
)

PROGRAM: Final = Program(
    "gnt-rapi-token", "Users and tokens of the remote API", COMMANDS
)
