"""Colours on terminals: the look of states, roles and parts of plans.

A colour never says more than the word that has it, so nothing is lost without colours,
in a pipe for example. The one table here is for listings, plans and the state of the
cluster; `wanted` decides whether there are colours at all.
"""

from collections.abc import Callable, Mapping
from typing import Final, TextIO

from ganeti.base.text.control_chars import render
from ganeti.commands.cli.context import CommandContext

#: ANSI terminal sequences by style: of parts of texts, then of states.
_SEQUENCES: Final = {
    "title": "\033[1m",
    "add": "\033[32m",
    "remove": "\033[31m",
    "change": "\033[33m",
    "error": "\033[1;31m",
    "good": "\033[32m",
    "active": "\033[36m",
    "attention": "\033[33m",
    "bad": "\033[1;31m",
    "idle": "\033[2m",
}
_PLAIN: Final = "\033[0m"

#: Style -> words of states of instances, jobs, incidents and nodes, and of verdicts.
_WORDS: Final = {
    "good": "running success completed online OK",
    "active": "waiting canceling pending",
    "attention": "ERROR_up canceled noted drained WARNING",
    "bad": (
        "ERROR_down ERROR_nodedown ERROR_nodeoffline ERROR_wrongnode error failed"
        " failing silent CRITICAL"
    ),
    "idle": "ADMIN_down ADMIN_offline USER_down down offline queued",
}
_STATES: Final = {
    word: style for style, words in _WORDS.items() for word in words.split()
}
_FLAGGED: Final = {"Y": "attention"}
#: Field of a query -> styles of its texts.
_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(("status", "admin_state"), _STATES),
    "role": {"M": "title", "D": "attention", "O": "bad"},
    "oper_state": {"running": "good", "stopped": "idle", "Y": "good", "N": "idle"},
    **dict.fromkeys(("offline", "drained"), _FLAGGED),
}
#: Returns the style of a text, empty for none.
Style = Callable[[str], str]


def of_field(name: str) -> Style | None:
    """Return the styles of a field of a query; None if it has none."""
    styles = _FIELDS.get(name)
    return None if styles is None else lambda text: styles.get(text, "")


def of_state(word: str) -> str:
    """Return the style of a state, empty for none."""
    return _STATES.get(word, "")


def wanted(ctx: CommandContext, stream: TextIO | None = None) -> bool:
    """Return whether to use colours: as ``--color`` says, else on a terminal.

    ``NO_COLOR`` in the environment, if not empty, means no colours, as documented at
    https://no-color.org, and so does a terminal that is dumb.

    Args:
        ctx: the command.
        stream: where the text goes, if it is not the standard output, which alone
            ``--color=always`` is about.
    """
    choice = ctx.option("color", "auto")
    if choice == "never" or (choice == "always" and stream is None):
        return bool(choice == "always")
    environ = ctx.effects.environ
    target = ctx.effects.stdout if stream is None else stream
    is_dumb = environ.get("TERM") == "dumb"
    return target.isatty() and not environ.get("NO_COLOR") and not is_dumb


class Painter:
    """Optional colouring of texts."""

    def __init__(self, *, is_coloured: bool) -> None:
        self.is_coloured = is_coloured

    @classmethod
    def of(cls, ctx: CommandContext, stream: TextIO | None = None) -> "Painter":
        """Return the painter of a command, see `wanted`."""
        return cls(is_coloured=wanted(ctx, stream))

    def __call__(self, style: str, text: str) -> str:
        """Return the text in a style, its control characters escaped.

        Args:
            style: ``""`` for a text without a colour.
            text: blanks at its beginning and end are not coloured.
        """
        body = text.strip(" ")
        if not self.is_coloured or not style or not body:
            return render(text)
        before, _, after = text.partition(body)
        return f"{before}{_SEQUENCES[style]}{render(body)}{_PLAIN}{after}"
