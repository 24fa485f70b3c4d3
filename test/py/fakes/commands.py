"""Runs a command in this process, with a fake master and captured output."""

import importlib
import io

from ganeti.commands.cli import app
from ganeti.commands.cli.context import ClientEffects


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


class Terminal(io.StringIO):
    """The controlling terminal: gives lines, keeps what was asked."""

    def __init__(self, answers):
        super().__init__()
        self._answers = list(answers)

    def readline(self):
        return self._answers.pop(0) if self._answers else ""

    def close(self):
        pass  # tests read what was asked


class Result:
    def __init__(self, code, out, err, terminal):
        self.code, self.out, self.err, self.terminal = code, out, err, terminal


def program(name):
    """Return the table of a program such as ``gnt-job``."""
    package = name.removeprefix("gnt-").replace("-", "_")
    module = importlib.import_module(f"ganeti.commands.{package}.table")
    return module.PROGRAM


def run(
    line,
    master=None,
    *,
    environ=None,
    answers=None,
    stdin="",
    tty=False,
    now=None,
    table=None,
    **effects,
):
    """Run ``gnt-x command ...`` (a list of words, or text to split).

    ``table`` is that of the program, if it is another one than its name says.
    """
    words = line.split() if isinstance(line, str) else line
    terminal = None if answers is None else Terminal(answers)
    out, err = (Tty() if tty else io.StringIO() for _ in range(2))
    all_effects = ClientEffects(
        environ=environ or {},
        connect=lambda *_: master,
        stdout=out,
        stderr=err,
        stdin=io.StringIO(stdin) if isinstance(stdin, str) else stdin,
        open_terminal=lambda: terminal,
        now=now or (lambda: 1_700_000_000.0),
        **effects,
    )
    code = app.main(table or program(words[0]), words[1:], effects=all_effects)
    asked = terminal.getvalue() if terminal else ""
    return Result(code, out.getvalue(), err.getvalue(), asked)
