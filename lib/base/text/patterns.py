r"""Regular expressions of users, searched in time that grows with the text alone.

Python's `re` tries alternatives one after the other, for some expressions of twenty
characters longer than anybody waits, and keeps the interpreter lock all the time, so
that a daemon answers nobody and ignores signals. RE2 tries all alternatives at once.
Its time is at most text times expression, its memory is bounded, and it releases the
lock during a search. Tests permit `re` for expressions of our own only.

Expressions have the syntax of RE2 (https://github.com/google/re2/wiki/Syntax), without
look-around, references to groups and repetitions above 1000; ``\w``, ``\d``, ``\s`` and
``\b`` are about ASCII, and ``$`` is the end of the text. Of what Python writes in
another way, ``\Z`` and ``{,n}`` are accepted.
"""

import re
from typing import Final

import re2

from ganeti.base import errors
from ganeti.base.text import control_chars

#: Bounds of an expression: characters, and instructions once compiled. The slowest one
#: within them takes 4 microseconds per byte of text.
MAX_LENGTH: Final = 2048
MAX_SIZE: Final = 2500
#: Characters of a text that are searched; names, tags and reasons are shorter. Rules on
#: jobs are evaluated while the job queue waits.
MAX_TEXT: Final = 4096
#: Memory of a compiled expression.
_MAX_MEMORY: Final = 256 * 1024
#: Characters of an expression in a message.
_SHOWN: Final = 120
#: Escaped characters, sets of characters, and the beginning of a repetition.
_PARTS: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*|\{,(?=[0-9]+\})", re.DOTALL | re.ASCII
)
_PYTHON: Final = {r"\Z": r"\z", "{,": "{0,"}
#: Beginnings of RE2's errors about what other engines have.
_BEYOND: Final = ("invalid perl op", "invalid escape", "bad repetition")


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.never_capture = True
    options.log_errors = False  # it would write to the standard error stream
    return options


_OPTIONS: Final = _options()


class Pattern:
    """A compiled expression; see `compile_`. Threads can share it."""

    __slots__ = ("_compiled", "size")

    def __init__(self, compiled: re2._Regexp) -> None:
        self._compiled = compiled
        #: Instructions, which determine time and memory.
        self.size: int = compiled.programsize

    def search(self, text: str) -> bool:
        """Return whether the expression matches anywhere in a text."""
        return self._compiled.search(_encoded(text)) is not None

    def fullmatch(self, text: str) -> bool:
        """Return whether the expression matches a text as a whole."""
        return self._compiled.fullmatch(_encoded(text)) is not None


def _encoded(text: str) -> bytes:
    # JSON can have halves of surrogate pairs, which no expression matches.
    return text[:MAX_TEXT].encode(errors="replace")


def compile_(text: str, *, ignore_case: bool = False) -> Pattern:
    """Return a user's expression, compiled.

    Raises:
        ParseError: the text is no expression, or one beyond the bounds.
    """
    if len(text) > MAX_LENGTH:
        raise _refusal(text, f"wanted at most {MAX_LENGTH} characters")
    own = _PARTS.sub(lambda part: _PYTHON.get(part[0], part[0]), text)
    try:
        compiled = re2.compile(f"(?i){own}" if ignore_case else own, _OPTIONS)
    except (re2.error, UnicodeEncodeError) as err:
        raise _refusal(text, _reason(err)) from err
    finally:
        re2.purge()  # compiled expressions belong to their users alone
    pattern = Pattern(compiled)
    if pattern.size > MAX_SIZE:
        raise _refusal(
            text,
            f"too large: wanted at most {MAX_SIZE} instructions once compiled, found"
            f" {pattern.size}",
        )
    return pattern


def _refusal(text: str, reason: str) -> errors.ParseError:
    shown = repr(text)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}... ({len(text)} characters)"
    return errors.ParseError(f"regular expression {shown}: {reason}")


def _reason(err: Exception) -> str:
    if isinstance(err, UnicodeEncodeError):
        return "wanted characters, found half of a surrogate pair"
    # It ends with a part of the expression, or with all of it.
    text = control_chars.escape(err.args[0].decode(errors="replace"))[:_SHOWN]
    if text.startswith(_BEYOND):
        return f"{text}; the syntax is RE2's, without look-around and references"
    return text
