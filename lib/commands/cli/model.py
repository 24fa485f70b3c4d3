"""Rows of the command tables: programs, commands, options and arguments.

Parsing, help, completion, manual pages and the conformance tests read these rows.
Behaviour does not belong here.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

#: Result of `priority` choices, as opcode priority.
PRIORITIES: Final = {"low": 10, "normal": 0, "high": -10}
#: Kinds of arguments whose names opcodes have as parameter KIND_name.
_OBJECTS: Final = frozenset(("group", "instance", "network", "node"))


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
        field: parameter of the opcode that gets the value: by default the one named
            like ``dest``, None if the command alone reads the option.
        convert: returns the parameter of a value; also called for an absent one.
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
    field: str | None = ""
    convert: Callable[[Any], Any] | None = None

    @property
    def listed(self) -> tuple[str, ...]:
        """Choices to list."""
        return self.suggested or self.choices

    @property
    def takes_value(self) -> bool:
        """Return whether the option takes a value."""
        return self.kind not in ("flag", "const", "count")


def option(
    names: str,
    text: str,
    kind: str = "flag",
    *,
    dest: str | None = None,
    clears: str = "",
    **more: Any,
) -> Option:
    """Return the row of an option; see `Option`.

    Args:
        names: separated by spaces.
        text: the help.
        kind: of the value.
        dest: by default the last name, such as ``dry_run`` of ``--dry-run``.
        clears: attribute that is true unless the flag is given.
        more: further attributes.
    """
    spellings = tuple(names.split())
    if clears:
        return Option(spellings, text, clears, sets=False, default=True, **more)
    if dest is None:
        dest = spellings[-1].lstrip("-").replace("-", "_")
    return Option(spellings, text, dest, kind, **more)


class Argument(NamedTuple):
    """Positional arguments of one kind.

    Attributes:
        kind: host, node, instance, …; decides on completion.
        minimum: smallest number.
        maximum: largest number, None for any.
        choices: the values that the command accepts, or suggestions.
        name: the name in help and synopsis; empty for the choices or the kind.
        fields: parameters of the opcode that get the values, by default KIND_name of
            one object. An only argument without any may repeat: one job per object.
    """

    kind: str
    minimum: int = 1
    maximum: int | None = 1
    choices: tuple[str, ...] = ()
    name: str = ""
    fields: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of the opcode that get the values."""
        if self.fields or self.maximum != 1 or self.kind not in _OBJECTS:
            return self.fields
        return (f"{self.kind}_name",)


class Command(NamedTuple):
    """One subcommand.

    Attributes:
        name: as typed.
        summary: one line.
        arguments: positional arguments in order.
        options: all but the common ones.
        run: ``module:function`` below the package ``ganeti``; the function takes a
            `context.Context` and returns an exit code or None. By default, arguments
            and options fill the opcode, and the command submits it.
        opcodes: jobs that it submits; all must be implemented by the master. The first
            one is the opcode that arguments and options fill.
        aliases: further names.
        fields: columns that a listing shows without ``-o``.
        more_fields: further ones, where no command ``list-fields`` lists them.
        exits: exit codes of special meaning, with the meaning.
        offered: False if the master does not implement one of the opcodes.
        requires: option -> text of the refusal without it.
        excludes: pairs of options of which only one may be given.
        changes: kind of object that the opcode changes: without any change the command
            refuses, and otherwise it prints the changes that the opcode made.
        reports: lines after the end of the jobs that the opcode submitted: if all
            succeeded, and if ``{}`` failed; ``{name}`` is the first argument.
        resource: of queries, whose fields the command lists.
    """

    name: str
    summary: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    run: str = "commands.cli.waiting.operation:run"
    opcodes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    more_fields: tuple[str, ...] = ()
    exits: tuple[tuple[int, str], ...] = ()
    offered: bool = True
    requires: tuple[tuple[str, str], ...] = ()
    excludes: tuple[tuple[str, str], ...] = ()
    changes: str = ""
    reports: tuple[str, str] | None = None
    resource: str = ""


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
    option("-h --help", "show this help and exit"),
    option(
        "-d --debug",
        "raise the debug level; also write the command's log to stderr",
        "count",
        default=0,
    ),
    option(
        "--reason",
        "reason for the change, stored in the reason trail of the jobs",
        "string",
    ),
)
