"""Examples of ``gnt-os`` for its help and its manual page."""

from typing import Final

from ganeti.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "list": (Example("gnt-os list", "names for -o of gnt-instance add"),),
    "diagnose": (Example("gnt-os diagnose", "why an OS is not in the list"),),
    "info": (Example("gnt-os info tiny", "variants and parameters"),),
    "modify": (
        Example("gnt-os modify --hidden yes tiny", "do not list it"),
        Example(
            "gnt-os modify -O motd=hello tiny", "a default for all instances of it"
        ),
    ),
}
