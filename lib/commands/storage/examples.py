"""Examples of ``gnt-storage`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "diagnose": (
        Example("gnt-storage diagnose", "show why a provider cannot be used"),
    ),
    "info": (
        Example("gnt-storage info shelf", "node groups and parameters of a provider"),
    ),
}
