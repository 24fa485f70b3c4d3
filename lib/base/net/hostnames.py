"""Host names as text."""

import re
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, misc

_LABEL: Final = re.compile(r"^(?!-)[a-z0-9_-]{1,63}(?<!-)$")
_MAX_LENGTH: Final = 255
#: Characters of a name that is too long in errors.
_SHOWN: Final = 40
_UUID: Final = re.compile(misc.UUID_REGEX)


def normalize(name: str) -> str:
    """Return a host name in lower case, without a final dot.

    Raises:
        OpPrereqError: the text is not a host name.
    """
    text = name.lower().removesuffix(".")
    if len(text) > _MAX_LENGTH or not all(map(_LABEL.fullmatch, text.split("."))):
        raise errors.OpPrereqError(
            f"wanted a host name such as web1.example.com, found {name!r}",
            ecodes.ECODE_INVAL,
        )
    return text


def check_free_name(name: str, what: str) -> None:
    """Check a name for a new object that need not be a host name.

    Args:
        name: to check.
        what: the kind of object, for the error.

    Raises:
        OpPrereqError: it is longer than any host name, does not fit in a line of a
            file, or has the form of a uuid.
    """
    if len(name) > _MAX_LENGTH:
        raise errors.OpPrereqError(
            f"{what} {name[:_SHOWN]}...: wanted a name of at most {_MAX_LENGTH}"
            f" characters, found {len(name)}",
            ecodes.ECODE_INVAL,
        )
    if not name.isprintable() or name != name.strip():
        raise errors.OpPrereqError(
            f"{what} {name!r}: a name must have printable characters only, and no space"
            " at its ends",
            ecodes.ECODE_INVAL,
        )
    refuse_uuid(name, f"{what} {name}")


def refuse_uuid(name: str, what: str) -> None:
    """Refuse a name for a new object that could be taken for the uuid of another.

    Args:
        name: to check.
        what: the object, for the error.

    Raises:
        OpPrereqError: it has the form of a uuid.
    """
    if _UUID.fullmatch(name):
        raise errors.OpPrereqError(
            f"{what}: a name must not look like a uuid", ecodes.ECODE_INVAL
        )
