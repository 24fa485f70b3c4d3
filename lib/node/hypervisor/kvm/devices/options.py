"""Options of the emulator that consist of parts between commas: the only builder.

The emulator splits such an option at commas; two commas are one in a value. A part that
came out of a value would be an option of its own, and some name files, sockets and
programs that it opens as root. So no other module joins parts of an option.
"""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors

#: Longer ones are refused before the kernel does (128 KiB for one argument).
_LONGEST: Final = 64 * 1024


def join(*first: Any, **parts: Any) -> str:
    """Return an option: values without a key, then pairs; None leaves a pair out.

    Underscores in keys become hyphens, and one at the end is left out.

    Raises:
        HypervisorError: a value has control characters, or is too long.
    """
    named = {key.rstrip("_").replace("_", "-"): item for key, item in parts.items()}
    return ",".join([*map(value, first), *_pairs(named)])


def _pairs(parts: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value(item)}" for key, item in parts.items() if item is not None]


def device(parts: Mapping[str, Any]) -> str:
    """Return a device with its driver, which is the member ``driver``."""
    rest = {key: item for key, item in parts.items() if key != "driver"}
    return ",".join([value(parts["driver"]), *_pairs(rest)])


def value(item: Any) -> str:
    """Return a value inside an option; the emulator reads it as a whole."""
    text = str(item)
    if not text.isprintable() or len(text) > _LONGEST:
        raise errors.HypervisorError(
            "hypervisor kvm: wanted a value of an option in one line without control"
            f" characters, found {text!r:.200}"
        )
    return text.replace(",", ",,")


def unquoted(**parts: Any) -> str:
    """Return an option of a program that cannot quote commas; refuse them.

    Raises:
        HypervisorError: a value has a comma or control characters.
    """
    text = join(**parts)
    if ",," in text:
        raise errors.HypervisorError(
            f"hypervisor kvm: wanted values without commas, found {text!r:.200}"
        )
    return text


def parsed(text: str) -> list[str]:
    """Return the parts of a parameter that is a list of options by definition.

    Whoever sets such a list needs the right to control nodes.
    """
    return [value(part) for part in text.split(",")]
