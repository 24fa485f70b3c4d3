"""Rows of the command tables: programs, commands, options and arguments.

Parsing, help, completion, manual pages and the conformance tests read these rows.
Behaviour does not belong here.
"""

from typing import Any, Final, NamedTuple

#: Result of `priority` choices, as opcode priority.
PRIORITIES: Final = {"low": 10, "normal": 0, "high": -10}


class Option(NamedTuple):
    """One option.

    Attributes:
        names: spellings, such as ``("-f", "--force")``.
        help: one line of text.
        dest: attribute that holds the value; empty for none.
        kind: ``flag``, ``const`` or ``count`` (no value), else a type of `cli.values`.
        sets: the value that a flag or const stores.
        default: value of an absent option; lists and mappings are copied.
        choices: allowed values of kind ``choice``.
        suggested: the choices that help and errors list, if not all of them: the others
            are known, but the master refuses them in this release.
        repeat: may be repeated; the values are collected in a list.
        warns: text to print on stderr when the option is used.
    """

    names: tuple[str, ...]
    help: str
    dest: str = ""
    kind: str = "flag"
    sets: Any = True
    default: Any = None
    choices: tuple[str, ...] = ()
    repeat: bool = False
    warns: str = ""
    suggested: tuple[str, ...] = ()

    @property
    def listed(self) -> tuple[str, ...]:
        """Choices to list."""
        return self.suggested or self.choices

    @property
    def takes_value(self) -> bool:
        """Return whether the option takes a value."""
        return self.kind not in ("flag", "const", "count")


class Argument(NamedTuple):
    """Positional arguments of one kind.

    Attributes:
        kind: host, node, instance, …; decides on completion.
        minimum: smallest number.
        maximum: largest number, None for any.
        choices: the values that the command accepts, or suggestions.
        name: the name in help and synopsis; empty for the choices or the kind.
    """

    kind: str
    minimum: int = 1
    maximum: int | None = 1
    choices: tuple[str, ...] = ()
    name: str = ""


class Example(NamedTuple):
    """One example call; see the ``examples`` module of each program.

    Attributes:
        line: as typed into a shell.
        text: the purpose of the call.
    """

    line: str
    text: str


class Command(NamedTuple):
    """One subcommand.

    Attributes:
        name: as typed.
        summary: one line.
        arguments: positional arguments in order.
        options: all but the common ones.
        run: ``module:function`` below the package ``ganeti``; the function takes a
            `context.Context` and returns an exit code or None.
        opcodes: jobs that it submits; all must be implemented by the master.
        aliases: further names.
        fields: columns that a listing shows without ``-o``.
        more_fields: further ones, where no command ``list-fields`` lists them.
        exits: exit codes of special meaning, with the meaning.
        offered: False if the master does not implement one of the opcodes.
    """

    name: str
    summary: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    run: str = ""
    opcodes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    more_fields: tuple[str, ...] = ()
    exits: tuple[tuple[int, str], ...] = ()
    offered: bool = True


class Program(NamedTuple):
    """One program.

    Attributes:
        name: such as ``gnt-instance``.
        summary: one line.
        commands: all commands, offered or not.
        tag_kind: kind of object of its tag commands, None if it has none.
        list_defaults: environment variable with default options of ``list``.
    """

    name: str
    summary: str
    commands: tuple[Command, ...]
    tag_kind: str | None = None
    list_defaults: str = ""

    def offered(self) -> tuple[Command, ...]:
        """Return the offered commands."""
        return tuple(command for command in self.commands if command.offered)

    def find(self, word: str) -> Command | None:
        """Return the offered command with this name or alias."""
        for command in self.commands:
            if command.offered and (word == command.name or word in command.aliases):
                return command
        return None


#: Options of every command.
COMMON_OPTIONS: Final = (
    Option(("-h", "--help"), "show this help and exit", "help"),
    Option(
        ("-d", "--debug"),
        "raise the debug level; also write the command's log to stderr",
        "debug",
        "count",
        default=0,
    ),
    Option(
        ("--reason",),
        "reason for the change, stored in the reason trail of the jobs",
        "reason",
        "string",
    ),
)
