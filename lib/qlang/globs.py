"""Globs over dotted names."""

import re


def glob_regex(glob: str) -> str:
    """Return the pattern for a glob over dotted names.

    ``*`` and ``?`` stop at dots; the glob matches a whole name or its leading
    components.
    """
    parts = {"*": "[^.]*", "?": "[^.]"}
    body = "".join(parts.get(char) or re.escape(char) for char in glob)
    return f"^{body}(\\..*)?$"
