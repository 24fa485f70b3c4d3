"""Help texts: the command list of a program, and the full help of one command."""

import textwrap
from typing import Final

from ganeti.base.constants import versions
from ganeti.commands.cli.help import examples
from ganeti.commands.cli.model import (
    COMMON_OPTIONS,
    Argument,
    Command,
    Option,
    Program,
)

_WIDTH: Final = 79
#: Longer names do not widen the column.
_NAME_WIDTH: Final = 60
_OPTION_WIDTH: Final = 26
_METAVARS: Final = {
    "string": "TEXT",
    "int": "NUMBER",
    "float": "NUMBER",
    "bool": "yes|no",
    "unit": "SIZE",
    "list": "A,B,...",
    "keyval": "KEY=VALUE,...",
    "keyprivateval": "KEY=VALUE,...|@FILE",
    "identkeyval": "NAME:KEY=VALUE,...",
    "multilistidentkeyval": "min:K=V,.../max:K=V,...",
    "maybefloat": "NUMBER|default",
    "json": "JSON",
    "filteraction": "ACTION",
}


def command_list(program: Program) -> str:
    """Return the command list that a program prints without a command."""
    lines = [
        f"Usage: {program.name} {{command}} [options...] [argument...]",
        f"{program.name} <command> --help to see details, or man {program.name}",
        "",
        "Commands:",
    ]
    commands = sorted(program.offered())
    width = min(_NAME_WIDTH, max(len(command.name) for command in commands))
    for command in commands:
        first = f" {command.name:<{width}} - "
        lines += textwrap.wrap(
            command.summary,
            _WIDTH,
            initial_indent=first,
            subsequent_indent=" " * len(first),
        )
    return "\n".join([*lines, ""])


def unknown_command(program: Program, word: str) -> str:
    """Return the error about a command that a program does not have."""
    from ganeti.base.text import messages

    # An alias is a synonym: its command is suggested, once.
    spellings = {
        spelling: command.name
        for command in program.offered()
        for spelling in (command.name, *command.aliases)
    }
    alike = [spellings[near] for near in messages.alike(word, spellings)]
    question = f"; did you mean {' or '.join(dict.fromkeys(alike))}?" if alike else ""
    return (
        f"{program.name}: error: unknown command {word!r}{question}\n"
        f"'{program.name} --help' lists all commands"
    )


def synopsis(program: Program, command: Command) -> str:
    """Return the synopsis of a command on one line."""
    words = [program.name, command.name, "[options]"]
    words += [word for row in command.arguments for word in _argument(row)]
    return " ".join(words)


def usage_block(program: Program, command: Command) -> str:
    """Return the first lines of a command's help and of errors in its options."""
    return f"Usage\n=====\n  {synopsis(program, command)}"


def more_help(program: Program, command: Command) -> str:
    """Return the line after a usage error that refers to the help."""
    return f"'{program.name} {command.name} --help' shows all options"


def _argument(row: Argument) -> list[str]:
    word = f"<{row.name or '|'.join(row.choices) or row.kind}>"
    words = [word] * row.minimum
    if row.maximum is None:
        words.append(f"[{word}...]")
    else:
        words += [f"[{word}]"] * (row.maximum - row.minimum)
    return words


def option_names(option: Option) -> str:
    """Return all spellings with the value, such as ``-o TEXT, --output=TEXT``."""
    if not option.takes_value:
        return ", ".join(option.names)
    value = "|".join(option.listed) if option.choices else _METAVARS[option.kind]
    if len(value) > _OPTION_WIDTH:
        value = "WORD"
    return ", ".join(
        f"{name}={value}" if name.startswith("--") else f"{name} {value}"
        for name in option.names
    )


def option_help(option: Option) -> str:
    """Return the help of an option, with choices and default where useful."""
    text = option.help
    if option.choices and "|" not in option_names(option):
        text += f" (one of {', '.join(option.listed)})"
    if option.repeat and "repeatable" not in text:
        text += "; repeatable"
    if option.takes_value and option.default not in (None, {}, []):
        text += f" [default: {option.default}]"
    return text


def _heading(title: str) -> list[str]:
    return ["", title, "=" * len(title)]


def _all_fields(command: Command) -> str:
    """Return the fields of a listing whose program lists no fields."""
    shown = ", ".join(command.fields)
    if not command.more_fields:
        return shown
    return f"{shown} unless -o selects others; also {', '.join(command.more_fields)}"


def command_help(program: Program, command: Command) -> str:
    """Return the full help of a command."""
    lines = [usage_block(program, command), ""]
    lines += textwrap.wrap(f"{command.summary[:1].upper()}{command.summary[1:]}.", 79)
    if command.aliases:
        lines.append(f"Also called {', '.join(command.aliases)}.")
    lines += _heading("Options")
    for option in (*COMMON_OPTIONS, *command.options):
        lines += _columns(option_names(option), option_help(option))
    if command.fields:
        lines += _heading("Fields")
        lines += textwrap.wrap(
            f"{', '.join(command.fields)} unless -o selects others;"
            f" '{program.name} list-fields' shows all"
            if any(row.name == "list-fields" for row in program.commands)
            else _all_fields(command),
            _WIDTH,
        )
    if shown := examples.of(program.name, command.name):
        lines += _heading("Examples")
    for call, purpose in shown:
        lines += [f"  {call}", f"      {purpose}"]
    lines += _heading("Exit codes")
    lines += _exit_codes(command)
    return "\n".join(lines)


def _columns(left: str, right: str) -> list[str]:
    indent = " " * (_OPTION_WIDTH + 2)
    body = textwrap.wrap(right, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    if len(left) <= _OPTION_WIDTH:
        return [f"{left:<{_OPTION_WIDTH}}  {body[0].lstrip()}", *body[1:]]
    return [left, *body]


def _exit_codes(command: Command) -> list[str]:
    codes = {0: "success", 1: "failure", 2: "wrong options"}
    codes.update(dict(command.exits))
    return [
        line
        for code, text in sorted(codes.items())
        for line in textwrap.wrap(
            f"{code:>3}  {text}", _WIDTH, subsequent_indent=" " * 5
        )
    ]


def version_line(program: str) -> str:
    """Return the line that ``--version`` prints."""
    return f"{program} (ganeti v{versions.RELEASE_VERSION}) {versions.RELEASE_VERSION}"
