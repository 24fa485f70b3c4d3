"""A process runner that runs nothing, and a process with the name of a program."""

import contextlib
import subprocess
import sys

from ganeti.base.process import RunResult

#: It says that it runs, and does so until its standard input ends.
_WAITS = "print('up', flush=True); input()"


@contextlib.contextmanager
def process_named(name):
    """Run a process whose command line has the name of a program; yields its Popen.

    A child's command line is empty for a moment after `subprocess.Popen` has returned,
    until the kernel has laid out the new program's arguments; this waits for its word.
    """
    words = [sys.executable, "-c", _WAITS, name]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as child:
        try:
            child.stdout.readline()
            yield child
        finally:
            child.kill()


class Unanswered(AssertionError):
    """A test runs a command, the argument, that its runner has no answer for."""


class FakeRunner:
    """Answers each command by its program's base name; refuses all others.

    An answer is ``(exit code, stdout, stderr)``, or a function of the argument list that
    returns one. ``_`` in a name is ``-`` in the program's. ``commands`` records the
    argument lists with their options in order.
    """

    #: The answer of a program that succeeds without output.
    DONE = (0, "", "")

    def __init__(self, **answers):
        self.answers = {
            name.replace("_", "-"): value for name, value in answers.items()
        }
        self.commands = []

    def run(self, argv, **options):
        argv = tuple(argv)
        self.commands.append((argv, options))
        name = argv[0].rsplit("/", 1)[-1]
        if name not in self.answers:
            raise Unanswered(" ".join(argv))
        answer = self.answers[name]
        code, stdout, stderr = answer(argv) if callable(answer) else answer
        return RunResult(argv, code, None, stdout, stderr)

    def run_bounded(self, argv, **options):
        return self.run(argv, **options)

    def run_many(self, commands, **options):
        return [self.run(argv, **options) for argv in commands]

    def run_trimmed(self, argv, **options):
        return self.run(argv, **options)

    @property
    def lines(self):
        """The commands as texts, programs by their base name."""
        return [
            " ".join((argv[0].rsplit("/", 1)[-1], *argv[1:]))
            for argv, _options in self.commands
        ]
