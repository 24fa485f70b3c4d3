"""Questions on the controlling terminal; without a terminal the answer is no."""

import contextlib
import termios
import textwrap
from collections.abc import Iterator
from typing import Final, TextIO

from ganeti.commands.cli.context import CommandContext

_WIDTH: Final = 70
#: Longer lists are shown only on request.
_SHOWN_ITEMS: Final = 20
#: Index of the local flags in terminal attributes.
_LOCAL_FLAGS: Final = 3

YES: Final = ("y", "Yes, continue")
NO: Final = ("n", "No, change nothing")
VIEW: Final = ("v", "View the list first")


def ask(ctx: CommandContext, text: str, choices: tuple[tuple[str, str], ...]) -> str:
    """Return the letter of the chosen answer; the last one is the safe one.

    Only the first two characters of an answer are read. The question is repeated until
    the answer is one of the choices.
    """
    fallback = choices[-1][0]
    terminal = ctx.effects.open_terminal()
    if terminal is None:
        ctx.err(
            f"Not confirmed, because there is no terminal for the question:"
            f" {_question(text)}"
        )
        return fallback
    letters = "/".join(letter for letter, _ in choices[:-1])
    prompt = f"{letters}/[{fallback}]/?: "
    body = "\n".join(textwrap.fill(part, _WIDTH) for part in text.splitlines())
    with terminal:
        terminal.write(f"{body}\n")
        while True:
            terminal.write(prompt)
            terminal.flush()
            line = terminal.readline()
            if not line:
                return fallback
            answer = line[:2].strip().lower()
            if any(answer == letter for letter, _ in choices):
                return answer
            if answer == "?":
                for letter, meaning in choices:
                    terminal.write(f" {letter} - {meaning}\n")


def _question(text: str) -> str:
    """Return a question as one line, without a list that follows it."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def has_terminal(ctx: CommandContext) -> bool:
    """Return whether anybody can be asked."""
    terminal = ctx.effects.open_terminal()
    if terminal is None:
        return False
    terminal.close()
    return True


def confirm(ctx: CommandContext, text: str) -> bool:
    """Ask whether to continue; a plan changes nothing and needs no answer."""
    if ctx.option("plan"):
        return True
    return ask(ctx, text, (YES, NO)) == "y"


def confirm_operation(
    ctx: CommandContext, items: list[str], *, kind: str, operation: str, extra: str = ""
) -> bool:
    """Ask for confirmation of an operation on these items.

    Args:
        ctx: the command.
        items: names.
        kind: plural noun, such as ``instances``.
        operation: verb, such as ``shutdown``.
        extra: one more sentence.
    """
    if ctx.option("plan"):
        return True
    question = f"The {operation} will operate on {len(items)} {kind}.\n"
    question += f"{extra}Do you want to continue?"
    listing = f"\n\nAffected {kind}:\n" + "\n".join(f"  {name}" for name in items)
    if len(items) <= _SHOWN_ITEMS:
        return confirm(ctx, question + listing)
    answer = ask(ctx, question, (YES, VIEW, NO))
    if answer == VIEW[0]:
        return confirm(ctx, question + listing)
    return answer == YES[0]


def password(ctx: CommandContext, account: str) -> str | None:
    """Return the password of an account such as ``root@node2``, typed without echo.

    Without a terminal, or without an answer, it is None.
    """
    terminal = ctx.effects.open_terminal()
    if terminal is None:
        return None
    with terminal:
        terminal.write(f"Password of {account}: ")
        terminal.flush()
        with _no_echo(terminal):
            line = terminal.readline()
        terminal.write("\n")
    return line.rstrip("\n") or None


@contextlib.contextmanager
def _no_echo(terminal: TextIO) -> Iterator[None]:
    """Turn the echo of a terminal off; other streams have none."""
    if not terminal.isatty():
        yield
        return
    descriptor = terminal.fileno()
    before = termios.tcgetattr(descriptor)
    silent = list(before)
    silent[_LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
