"""Manual pages and shell completion, generated from the command tables.

``man/PROGRAM.rst`` has the prose: the sections of the page in order. Its section
COMMANDS has one subsection per command, named like the command. Synopsis, options,
default fields, examples and exit codes of each command come from the tables, so they
cannot differ from the program.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ganeti.commands.cli import options
from ganeti.commands.cli.help import manual_parameters, usage
from ganeti.commands.cli.help.manual_parameters import escape
from ganeti.commands.cli.model import COMMON_OPTIONS, Command, Program

_COMMON: Final = (
    "Options precede arguments. Long options may be abbreviated if the abbreviation"
    " is unique. The options *-h*, *-d* and *--reason*, which every command accepts,"
    " are described in ganeti(7)."
)
_HEADING: Final = r"^(\S.*)\n{}{{3,}}\n"
#: Groups of options that many commands share, with the place of their description.
_SHARED: Final = (
    (
        "Options for jobs, described in ganeti(7)",
        (options.DRY_RUN, *options.JOB),
    ),
    (
        "Options for the output, described in ganeti(7)",
        (
            options.OUTPUT,
            options.UNITS,
            options.FILTER,
            *options.TABLE,
            options.JSON,
        ),
    ),
    (
        "Options that select instances, described in SELECTING INSTANCES",
        options.SELECTION,
    ),
)
#: Kinds of arguments that a running cluster can complete: kind -> command.
_NAMES: Final = {
    "instance": "gnt-instance list --no-headers -o name",
    "node": "gnt-node list --no-headers -o name",
    "group": "gnt-group list --no-headers -o name",
    "network": "gnt-network list --no-headers -o name",
    "os": "gnt-os list --no-headers",
    "jobid": "gnt-job list --no-headers -o id",
    "job": "gnt-job list --no-headers -o id",
}


def page(program: Program, prose: str, version: str) -> str:
    """Return the manual page of a program as reStructuredText.

    Args:
        program: its table.
        prose: the sections after the synopsis; may be empty.
        version: release.

    Raises:
        ValueError: the prose describes a command that the program does not offer.
        KeyError: the prose names a list of parameters that does not exist.
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
    ]
    sections = dict(split(manual_parameters.expand(prose), "="))
    sections.setdefault("COMMANDS", "")
    for name, text in sections.items():
        lines += _section(name)
        lines += _commands(program, text) if name == "COMMANDS" else [text, ""]
    return "\n".join(lines) + "\n"


def split(text: str, mark: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of a text whose headings are underlined with a mark.

    Yields:
        heading and text of each section; text before the first heading is omitted.
    """
    parts = re.split(_HEADING.format(re.escape(mark)), text, flags=re.MULTILINE)
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        yield heading, body.strip()


def _section(name: str) -> list[str]:
    return [name, "=" * len(name), ""]


def _commands(program: Program, text: str) -> Iterator[str]:
    prose = dict(split(text, "-"))
    unknown = prose.keys() - {command.name for command in program.offered()}
    if unknown:
        raise ValueError(f"{program.name} has no commands {sorted(unknown)}")
    yield from (_COMMON, "")
    for command in sorted(program.offered()):
        yield from _command(program, command, prose.get(command.name, ""))


def _command(program: Program, command: Command, prose: str) -> Iterator[str]:
    title = command.name.upper()
    summary = f"{command.summary[:1].upper()}{command.summary[1:]}."
    yield from (title, "-" * len(title), "")
    yield from (f"**{escape(usage.synopsis(program, command))}**", "")
    if command.aliases:
        yield from (f"Also called {', '.join(command.aliases)}.", "")
    yield from (prose or escape(summary), "")
    yield from _options(command)
    if command.fields:
        yield from (f"Default fields: {escape(', '.join(command.fields))}.", "")
    if command.more_fields:
        yield from (f"Further fields: {escape(', '.join(command.more_fields))}.", "")
    for example in usage.examples(program, command):
        text = f"{example.text[:1].upper()}{example.text[1:]}"
        yield from (f"Example: {escape(text)}::", "", f"    {example.line}", "")
    for code, meaning in command.exits:
        yield from (f"Exit code {code}: {escape(meaning)}.", "")


def _options(command: Command) -> Iterator[str]:
    shared = [option for _, group in _SHARED for option in group]
    for option in command.options:
        if option not in shared:
            yield f"**{escape(usage.option_names(option))}**"
            yield f"  {escape(usage.option_help(option))}"
            yield ""
    for where, group in _SHARED:
        names = [
            f"**{escape(usage.option_names(option))}**"
            for option in command.options
            if option in group
        ]
        if names:
            yield from (f"{where}: {'; '.join(names)}.", "")


def bash_completion(programs: Sequence[Program]) -> str:
    """Return a completion script for bash, which zsh reads with bashcompinit.

    zsh has neither ``mapfile`` nor a free variable ``options``.
    """
    lines = [
        "# Completion of the gnt-* commands; generated from their tables.",
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
