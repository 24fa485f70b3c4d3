"""A process runner that runs nothing and remembers what it was asked to run."""

from ganeti.process import RunResult


class FakeRunner:
    """Answers each command by its program's base name; unknown ones succeed."""

    def __init__(self, **answers):
        self.answers = {
            name.replace("_", "-"): value for name, value in answers.items()
        }
        self.commands = []

    def run(self, argv, **options):
        argv = tuple(argv)
        self.commands.append((argv, options))
        answer = self.answers.get(argv[0].rsplit("/", 1)[-1], (0, "", ""))
        code, stdout, stderr = answer(argv) if callable(answer) else answer
        return RunResult(argv, code, None, stdout, stderr)

    def run_bounded(self, argv, **options):
        return self.run(argv, **options)

    def run_trimmed(self, argv, **options):
        return self.run(argv, **options)

    @property
    def lines(self):
        """The commands as texts, programs by their base name."""
        return [
            " ".join((argv[0].rsplit("/", 1)[-1], *argv[1:]))
            for argv, _options in self.commands
        ]
