"""Texts about collectors in manual pages, made without the libraries of their code."""

import itertools
import re
from collections.abc import Iterator
from typing import Final

from ganeti.base.constants.protocols import mond

_MARK: Final = re.compile(r"^\.\. collectors:: (.+)$", re.MULTILINE)


def expand(prose: str) -> str:
    """Return the prose with each ``.. collectors::`` line replaced by its text.

    Raises:
        KeyError: there is no such text.
    """
    return _MARK.sub(lambda match: "\n".join(_TEXTS[match[1]]()), prose)


def _agent() -> Iterator[str]:
    """Yield lines; collectors in a row that report the same share one."""
    for text, rows in itertools.groupby(mond.ROWS, lambda row: row.page):
        names = ", ".join(
            f"**{row.name}** ({row.category or mond.DEFAULT_CATEGORY})" for row in rows
        )
        yield f"| {names}: {text}"


def _tool() -> Iterator[str]:
    """Yield a definition of each collector that can collect once, and the others."""
    for row in mond.COLLECTORS:
        if not row.is_average:
            yield row.name
            yield f"   {row.tool_page or f'{row.text[0].upper()}{row.text[1:]}.'}"
    averages = [f"*{row.name}*" for row in mond.COLLECTORS if row.is_average]
    text = ", ".join(averages[:-1])
    yield ""
    yield f"The averages of {text} and {averages[-1]} exist only inside the daemon."


_TEXTS: Final = {"ganeti-mond": _agent, "mon-collector": _tool}
