"""Examples of ``gnt-rapi-token`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "add": (
        Example(
            "gnt-rapi-token add --rights read --expires 90d dashboard",
            "a token of a program that only reads",
        ),
        Example(
            "gnt-rapi-token add --rights 'write:/2/instances/web-*' deploy",
            "a token that may change some instances",
        ),
        Example(
            "gnt-rapi-token add --replace deploy",
            "a new token with the rights of the old one, which is valid no longer",
        ),
    ),
    "list": (Example("gnt-rapi-token list --json", "everybody, for a program"),),
    "password": (
        Example(
            "gnt-rapi-token password --rights write jack",
            "a user whose password is asked for",
        ),
    ),
    "remove": (
        Example("gnt-rapi-token remove deploy", "withdraw a token at once"),
        Example("gnt-rapi-token remove --expired", "tidy up"),
    ),
}
