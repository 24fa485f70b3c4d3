"""Lists of parameters, generated from the parameter tables.

In manual pages, a line ``.. parameters:: KIND`` in the prose is replaced by one entry
per parameter: name, type, default, allowed values, meaning, and when a change takes
effect. The kinds are the keys of the table `_kinds` returns, such as ``backend`` or
``hypervisor kvm``. ``gnt-cluster modify --help-parameters`` prints all kinds.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ganeti.base.constants.parameters import forms, hvparams, param_effects, params

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
#: Kinds in the order of the help, or their common first word, and how they are set.
_OPTIONS: Final = {
    "backend": "-B NAME=VALUE,...",
    "hypervisor": "-H {}:NAME=VALUE,...",
    "nic": "-N NAME=VALUE,...",
    "nic of an instance": "gnt-instance modify --net INDEX:NAME=VALUE,...",
    "disk of an instance": "gnt-instance modify --disk INDEX:NAME=VALUE,...",
    "disk template": "-D {}:NAME=VALUE,...",
    "node": "--node-parameters NAME=VALUE,...",
}


def expand(prose: str) -> str:
    """Return the prose with each ``.. parameters::`` line replaced by its list.

    Raises:
        KeyError: a kind does not exist.
    """
    return _MARK.sub(lambda match: "\n".join(_entries(match[1])), prose)


def _kinds() -> dict[str, Mapping[str, params.Param | hvparams.HvParam]]:
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
    return [
        Entry(
            name,
            tuple(_facts(row)),
            " ".join(
                map(_sentence, (row.meaning, param_effects.effect_of(kind, name)))
            ),
        )
        for name, row in sorted(_kinds()[kind].items())
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def all_kinds() -> str:
    """Return the entries of all kinds as plain text, without final newline."""
    lines: list[str] = []
    for kind, option in _OPTIONS.items():
        names = [name for name in _kinds() if name == kind or name.startswith(kind)]
        for name in names if kind not in _kinds() else [kind]:
            entries = explain(name)
            if not entries:
                continue
            title = f"Parameters: {name} ({option.format(name.rpartition(' ')[2])})"
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


def _facts(row: params.Param | hvparams.HvParam) -> Iterator[str]:
    yield _TYPES[row.type]
    default = _default(row.default)
    if default:
        yield f"default {default}"
    if isinstance(row, hvparams.HvParam):
        yield from _hypervisor_facts(row)
    if row.root is not None:
        yield f"over the remote API, {row.root.which} needs the right root"


def _hypervisor_facts(row: hvparams.HvParam) -> Iterator[str]:
    if isinstance(row.allowed, tuple):
        yield f"one of {', '.join(row.allowed)}"
    elif row.allowed:
        yield row.allowed
    elif row.form not in (None, forms.LINE):
        yield row.form.wanted
    if row.required:
        yield "never empty"
    if row.cluster_only:
        yield "cluster only"


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
