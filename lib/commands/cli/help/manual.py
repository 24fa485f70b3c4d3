"""Manual pages from the command tables, and the explanation of all parameters.

``man/PROGRAM.rst`` has the prose: the sections of the page in order. Its section
COMMANDS has one subsection per command, named like the command. Synopsis, options,
default fields, examples and exit codes of each command come from the tables, so they
cannot differ from the program.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ganeti.base.constants.parameters import forms, hvparams, params
from ganeti.commands.cli import options
from ganeti.commands.cli.help import examples, usage
from ganeti.commands.cli.model import Command, Program

_WIDTH: Final = 79
_MARK: Final = re.compile(r"^\.\. parameters:: (.+)$", re.MULTILINE)
#: Types in the tables -> types in the pages.
_TYPES: Final = {
    "bool": "true or false",
    "float": "number",
    "int": "whole number",
    "maybe-string": "text or none",
    "size": "size",
    "string": "text",
}


class _Kind(NamedTuple):
    """How parameters of a kind are set, and when a change takes effect by default."""

    option: str
    effect: str


#: Kinds in the order of the help, or their common first word.
_FAMILIES: Final = {
    "backend": _Kind("-B NAME=VALUE,...", forms.START),
    "hypervisor": _Kind("-H {}:NAME=VALUE,...", forms.START),
    "nic": _Kind("-N NAME=VALUE,...", forms.HOT),
    "nic of an instance": _Kind(
        "gnt-instance modify --net INDEX:NAME=VALUE,...", forms.HOT
    ),
    "disk of an instance": _Kind(
        "gnt-instance modify --disk INDEX:NAME=VALUE,...", forms.ADDED
    ),
    "disk template": _Kind("-D {}:NAME=VALUE,...", forms.ACTIVATION),
    "node": _Kind("--node-parameters NAME=VALUE,...", forms.NOW),
}


def expand(prose: str) -> str:
    """Return the prose with each ``.. parameters::`` line replaced by its list.

    Raises:
        KeyError: a kind does not exist.
    """
    return _MARK.sub(lambda match: "\n".join(_entries(match[1])), prose)


def _parameter_kinds() -> dict[str, Mapping[str, forms.Param]]:
    return {
        "backend": params.BACKEND,
        "nic": params.NIC,
        "nic of an instance": params.INIC,
        "disk of an instance": params.IDISK,
        "node": params.NODE,
        **{f"hypervisor {name}": rows for name, rows in hvparams.HYPERVISOR.items()},
        **{f"disk template {name}": rows for name, rows in params.DISK.items()},
    }


class Entry(NamedTuple):
    """The explanation of one parameter.

    Attributes:
        name: of the parameter.
        facts: type, default and allowed values.
        text: sentences: the meaning, and when a change takes effect.
    """

    name: str
    facts: tuple[str, ...]
    text: str


def explain(kind: str) -> list[Entry]:
    """Return the entries of a kind of parameters, sorted by name.

    Raises:
        KeyError: the kind does not exist.
    """
    family = _FAMILIES.get(kind) or _FAMILIES[kind.rpartition(" ")[0]]
    return [
        Entry(
            name,
            tuple(_facts(param, shows_form=family is _FAMILIES["hypervisor"])),
            " ".join(map(_sentence, (param.meaning, param.effect or family.effect))),
        )
        for name, param in sorted(_parameter_kinds()[kind].items())
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def all_kinds() -> str:
    """Return the entries of all kinds as plain text, without final newline."""
    lines: list[str] = []
    for kind, family in _FAMILIES.items():
        names = [
            name for name in _parameter_kinds() if name == kind or name.startswith(kind)
        ]
        for name in names if kind not in _parameter_kinds() else [kind]:
            entries = explain(name)
            if not entries:
                continue
            title = (
                f"Parameters: {name} ({family.option.format(name.rpartition(' ')[2])})"
            )
            lines += ["", title, "=" * len(title)]
            for entry in entries:
                lines.append(f"{entry.name} ({', '.join(entry.facts)})")
                lines += textwrap.wrap(
                    entry.text, _WIDTH, initial_indent="    ", subsequent_indent="    "
                )
    return "\n".join(lines[1:])


def _entries(kind: str) -> Iterator[str]:
    for entry in explain(kind):
        yield f"**{entry.name}** ({escape(', '.join(entry.facts))})"
        yield f"  {escape(entry.text)}"
        yield ""


def _facts(param: forms.Param, *, shows_form: bool) -> Iterator[str]:
    yield _TYPES[param.type]
    default = _default(param.default)
    if default:
        yield f"default {default}"
    if isinstance(param.allowed, tuple):
        yield f"one of {', '.join(param.allowed)}"
    elif param.allowed:
        yield param.allowed
    elif shows_form and param.form not in (None, forms.LINE):
        yield param.form.wanted
    if param.required:
        yield "never empty"
    if param.cluster_only:
        yield "cluster only"
    if param.root is not None:
        yield f"over the remote API, {param.root.which} needs the right root"


def _default(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def escape(text: str) -> str:
    """Return the text with the marks of reStructuredText escaped."""
    for char in "\\*`|_":
        text = text.replace(char, f"\\{char}")
    return text


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
    sections = dict(split(expand(prose), "="))
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
    for call, purpose in examples.of(program.name, command.name):
        text = f"{purpose[:1].upper()}{purpose[1:]}"
        yield from (f"Example: {escape(text)}::", "", f"    {call}", "")
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
