"""Examples of ``gnt-os`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "list": (Example("gnt-os list", "names for the option -o of gnt-instance add"),),
    "diagnose": (Example("gnt-os diagnose", "show why an OS is not in the list"),),
    "info": (Example("gnt-os info tiny", "variants and parameters of an OS"),),
    "modify": (
        Example("gnt-os modify --hidden yes tiny", "omit an OS from the list"),
        Example(
            "gnt-os modify -O motd=hello tiny",
            "set a default parameter for all its instances",
        ),
    ),
}
