"""Lists of parameters in manual pages, generated from the parameter tables.

A line ``.. parameters:: KIND`` in the prose of a page is replaced by one entry per
parameter: name, type, default, allowed values and meaning. The kinds are the keys of
the table `_kinds` returns, such as ``backend`` or ``hypervisor kvm``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.constants import hvparams, params

_MARK: Final = re.compile(r"^\.\. parameters:: (.+)$", re.MULTILINE)
#: Types in the tables -> types in the pages.
_TYPES: Final = {
    "bool": "yes or no",
    "float": "number",
    "int": "whole number",
    "maybe-string": "text or none",
    "size": "size",
    "string": "text",
}


def expand(prose: str) -> str:
    """Return the prose with each ``.. parameters::`` line replaced by its list.

    Raises:
        KeyError: a kind does not exist.
    """
    kinds = _kinds()
    return _MARK.sub(lambda match: "\n".join(_entries(kinds[match[1]])), prose)


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


def _entries(rows: Mapping[str, params.Param | hvparams.HvParam]) -> Iterator[str]:
    for name, row in sorted(rows.items()):
        yield f"**{name}** ({', '.join(_facts(row))})"
        yield f"  {escape(row.meaning[:1].upper() + row.meaning[1:])}."
        yield ""


def _facts(row: params.Param | hvparams.HvParam) -> Iterator[str]:
    yield _TYPES[row.type]
    default = _default(row.default)
    if default:
        yield f"default {default}"
    if isinstance(row, params.Param):
        return
    if isinstance(row.allowed, tuple):
        yield f"one of {escape(', '.join(row.allowed))}"
    elif row.allowed:
        yield escape(row.allowed)
    if row.required:
        yield "never empty"
    if row.cluster_only:
        yield "cluster only"


def _default(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(str(value))


def escape(text: str) -> str:
    """Return the text with the marks of reStructuredText escaped."""
    for char in "\\*`|_":
        text = text.replace(char, f"\\{char}")
    return text
