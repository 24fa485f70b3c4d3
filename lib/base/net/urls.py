"""URLs in messages."""

import re
from typing import Final

#: Parts of a URL: scheme, server and path, beginning of query or fragment, the rest.
_PARTS: Final = re.compile(
    r"([a-zA-Z]+:/+)?(?:[^/?#]*@)?([^?#]*)(?:([?#])(.*))?", re.DOTALL
)


def shown(url: str) -> str:
    """Return a URL for messages: without user, password, query and fragment.

    Those may be secrets of its server, and messages go to logs and journals. A
    password with a slash, question mark or number sign makes the URL invalid: then the
    text between the first colon and the last "@" may be a password.
    """
    parts = _PARTS.fullmatch(url)
    scheme, place, mark, rest = parts.groups("") if parts else ("", "", "", "")
    before, colon, after = place.partition(":")
    if colon and "@" in after + rest:
        return f"{scheme}{before}..."
    return f"{scheme}{place}{mark}{'...' if mark else ''}"
