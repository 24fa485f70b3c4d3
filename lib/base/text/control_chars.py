r"""Control characters: one definition, and a treatment per place where text goes.

A control character changes how the text around it is shown or split into lines instead
of being shown itself: Unicode category Cc (C0, DEL, and C1, whose U+009B begins a
terminal sequence like ESC ``[``), the bidirectional controls (Unicode Standard Annex 9,
section 2), the line and paragraph separators, and the byte order mark.

==================  ======================================================  ===========
place               treatment                                               function
==================  ======================================================  ===========
input files         the first one is refused, with its place                `find`
job and daemon log  replaced by ``?``; tabs and line ends may stay          `replace`
terminal, a value   ``\n``, ``\t``, ``\r``, ``\xNN`` or ``\uNNNN``, as for  `escape`
                    all characters that are not printable
terminal, anything  ``\xNN`` or ``\uNNNN``; tabs and line ends stay         `render`
==================  ======================================================  ===========
"""

import re
from typing import Final

#: Members of a character class.
_MEMBERS: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional
    "\u2028\u2029"  # line and paragraph separator
    "\ufeff"  # byte order mark
)
_ANY: Final = re.compile(f"[{_MEMBERS}]")
_BUT_LINE_ENDS: Final = re.compile(f"(?!\n)[{_MEMBERS}]")
_BUT_TABS_AND_LINE_ENDS: Final = re.compile(f"(?![\t\n])[{_MEMBERS}]")
_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def is_control(char: str) -> bool:
    """Return whether one character is a control character."""
    return _ANY.fullmatch(char) is not None


def find(text: str) -> re.Match[str] | None:
    """Return the first control character of a file's content, line feeds excepted."""
    return _BUT_LINE_ENDS.search(text)


def replace(text: str) -> str:
    """Return text for a log: ``?`` for control characters except tab and line feed."""
    return _BUT_TABS_AND_LINE_ENDS.sub("?", text)


def escape(text: str) -> str:
    r"""Return text for a terminal: one line, all characters printable.

    Every control character is written as an escape sequence, and so is every other
    character that `str.isprintable` refuses, as the command line documents.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else _ESCAPES.get(char) or _numeric(ord(char))
        for char in text
    )


def render(text: str) -> str:
    r"""Return lines for a terminal: control characters but tab and line feed escaped.

    All output of commands goes through this function, as a part of it may come from a
    node. Characters that JSON texts may contain get the form ``\uNNNN``, which keeps a
    JSON text valid and its meaning the same.
    """
    return _BUT_TABS_AND_LINE_ENDS.sub(_rendered, text)


def _rendered(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 32 else f"\\u{code:04x}"


def _numeric(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
