"""Manual pages and shell completion, made from the command tables.

Prose that matters stands in ``man/PROGRAM.rst`` and is put before the commands; what
a command takes is never written by hand.
"""

from collections.abc import Sequence
from typing import Final

from ganeti.cli import usage
from ganeti.cli.model import COMMON_OPTIONS, Command, Option, Program

_COMMON: Final = (
    "Options stand before arguments. Long options may be shortened as long as they are"
    " unique. See ganeti(7) for what all commands have in common."
)
#: Kinds of arguments that a running cluster can complete: kind -> command.
_NAMES: Final = {
    "instance": "gnt-instance list --no-headers -o name",
    "node": "gnt-node list --no-headers -o name",
    "group": "gnt-group list --no-headers -o name",
    "os": "gnt-os list --no-headers",
    "jobid": "gnt-job list --no-headers -o id",
    "job": "gnt-job list --no-headers -o id",
}


def page(program: Program, prose: str, version: str) -> str:
    """Return the manual page of a program as reStructuredText.

    Args:
        program: its table.
        prose: sections between description and commands, may be empty.
        version: release.
    """
    title, subtitle = program.name, program.summary
    lines = [
        "=" * len(title),
        title,
        "=" * len(title),
        "",
        "-" * len(subtitle),
        subtitle,
        "-" * len(subtitle),
        "",
        ":Manual section: 8",
        f":Manual group: Ganeti | Version {version}",
        "",
        *_section("SYNOPSIS"),
        f"**{program.name}** *command* [*options*] [*arguments*]",
        "",
        *prose.splitlines(),
        "",
        *_section("COMMANDS"),
        _COMMON,
        "",
    ]
    for command in sorted(program.offered()):
        lines += _command(program, command)
    return "\n".join(lines) + "\n"


def _section(name: str) -> list[str]:
    return [name, "=" * len(name), ""]


def _command(program: Program, command: Command) -> list[str]:
    title = command.name.upper()
    text = f"{command.summary[:1].upper()}{command.summary[1:]}."
    lines = [title, "-" * len(title), ""]
    lines += [f"**{_escape(usage.synopsis(program, command))}**", "", _escape(text), ""]
    if command.aliases:
        lines += [f"Also called {', '.join(command.aliases)}.", ""]
    for option in command.options:
        lines += _option(option)
    if command.fields:
        lines += [f"Default fields: {', '.join(command.fields)}.", ""]
    for example in usage.examples(program, command):
        text = f"{example.text[:1].upper()}{example.text[1:]}"
        lines += [f"Example: {_escape(text)}::", "", f"    {example.line}", ""]
    for code, meaning in command.exits:
        lines += [f"Exit code {code}: {_escape(meaning)}.", ""]
    return lines


def _option(option: Option) -> list[str]:
    return [
        f"**{_escape(usage.option_names(option))}**",
        f"  {_escape(usage.option_help(option))}",
        "",
    ]


def _escape(text: str) -> str:
    for char in "\\*`|_":
        text = text.replace(char, f"\\{char}")
    return text


def bash_completion(programs: Sequence[Program]) -> str:
    """Return a completion script for bash, which zsh reads with bashcompinit.

    zsh has neither ``mapfile`` nor a free variable ``options``.
    """
    lines = [
        "# Completion of the gnt-* commands; made from their tables.",
        "# In zsh: autoload -U +X bashcompinit && bashcompinit, then source this file.",
    ]
    for program in programs:
        lines += _bash_function(program)
    return "\n".join(lines) + "\n"


def _bash_function(program: Program) -> list[str]:
    name = "_" + program.name.replace("-", "_")
    known = sorted(w for row in program.offered() for w in (row.name, *row.aliases))
    lines = [
        f"{name}() {{",
        "  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}",
        f'  local flags="" names="" all="{" ".join(known)}"',
        '  if [ "$COMP_CWORD" = 1 ]; then',
        '    COMPREPLY=($(compgen -W "$all" -- "$word"))',
        "    return",
        "  fi",
        '  case "$command" in',
    ]
    for row in program.offered():
        words = "|".join((row.name, *row.aliases))
        values = f'flags="{_option_words(row)}" names="{_names(row)}"'
        lines.append(f"    {words}) {values} ;;")
    lines += [
        "  esac",
        '  if [[ "$word" != -* && -n "$names" ]]; then',
        "    flags=$($names 2> /dev/null)",
        "  fi",
        '  COMPREPLY=($(compgen -W "$flags" -- "$word"))',
        "}",
        f"complete -F {name} {program.name}",
    ]
    return lines


def _option_words(command: Command) -> str:
    options = (*COMMON_OPTIONS, *command.options)
    return " ".join(sorted(name for option in options for name in option.names))


def _names(command: Command) -> str:
    for row in command.arguments:
        if row.choices:
            return f"echo {' '.join(row.choices)}"
        if row.kind in _NAMES:
            return _NAMES[row.kind]
    return ""
